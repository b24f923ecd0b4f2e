// SPDX-License-Identifier: Apache-2.0
// The state of a checkpoint's files, by which the server notices that they were
// replaced or written to. These functions look at the disk; any thread.
#ifndef SERVER_READING_CHECKPOINT_STATE_H_
#define SERVER_READING_CHECKPOINT_STATE_H_

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "server/access/rooted_file_system.h"

namespace dcp::server {

// Text that changes when the index is replaced: for DCP it describes one file,
// for shards in safetensors or .bin the listing of the directory. With a
// mapping, also when the config.json that it may use is replaced. Cancelled
// once `stop` is requested.
absl::StatusOr<std::string> IndexState(RootedFileSystem& fs,
                                       const std::string& path,
                                       const OpenOptions& open,
                                       const std::stop_token& stop);

// The state of the files that the index names.
struct FilesState {
  std::string text;  // empty if a file was replaced after it was opened
  // Each file's bytes, in the order of the index; absent if the file does not
  // exist.
  std::vector<std::optional<uint64_t>> sizes;
};
absl::StatusOr<FilesState> LookAtFiles(RootedFileSystem& fs,
                                       const Checkpoint& checkpoint,
                                       const std::stop_token& stop);

// A digest of both.
std::string CombinedDigest(absl::string_view index_state,
                           absl::string_view files_state);

}  // namespace dcp::server

#endif  // SERVER_READING_CHECKPOINT_STATE_H_
