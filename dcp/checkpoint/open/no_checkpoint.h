// SPDX-License-Identifier: Apache-2.0
// Why there is no checkpoint that can be read, where one was expected: says
// what is there instead and what to do. Looks at names, and at what the user
// has to know from a small file. Any thread.
#ifndef DCP_CHECKPOINT_OPEN_NO_CHECKPOINT_H_
#define DCP_CHECKPOINT_OPEN_NO_CHECKPOINT_H_

#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/io/file_system.h"

namespace dcp {

// For a directory in which no opener found the signs of its dialect. NotFound,
// for a save that did not finish, too; FailedPrecondition, with at most ten
// names, if it is a folder of several checkpoints; Unimplemented for a
// checkpoint of another kind.
absl::Status WhyNoCheckpoint(const SourceDirectory& directory,
                             const std::stop_token& stop);

// Whether metadata.pkl is the index of torch_checkpointing, so that weights
// next to it may be parts that ranks have.
absl::StatusOr<bool> HasItemsIndex(const SourceDirectory& directory,
                                   const std::stop_token& stop);

// OK unless the name of the file at `path` is that of something that contains a
// checkpoint or leads to one, but is none: an archive .nemo, or Composer's
// .symlink.
absl::Status CheckFileName(FileSystem& fs, absl::string_view path,
                           const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_NO_CHECKPOINT_H_
