// SPDX-License-Identifier: Apache-2.0
// Litter: the files that killed writers left in an object store: uploads that
// were never finished, and data files that no index names. On a file system the
// next writer removes such things itself. In a store, only the time since the
// last write suggests that a writer is dead. Blocking; any thread.
#ifndef DCP_CHECKPOINT_DESTINATION_LITTER_H_
#define DCP_CHECKPOINT_DESTINATION_LITTER_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"

namespace dcp {

struct Litter {
  std::vector<HiddenFile> uploads;  // sorted by path, as the others
  // DCP data files, and digests, that their directory's index does not name.
  std::vector<StoredFile> files;
  // Directories with an index that cannot be read, and why: nothing in them
  // counts as litter.
  std::vector<std::string> unclear;
};

// The litter below `path`, in all folders, that was begun or written before
// `before_ns`. InvalidArgument on a file system that renames; ResourceExhausted
// when there are more than kMaxFiles files.
absl::StatusOr<Litter> FindLitter(FileSystem& fs, absl::string_view path,
                                  int64_t before_ns,
                                  const std::stop_token& stop);

// Removes all of it; goes on after an error and returns the first one.
absl::Status RemoveLitter(FileSystem& fs, const Litter& litter,
                          const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_LITTER_H_
