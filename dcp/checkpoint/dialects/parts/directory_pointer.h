// SPDX-License-Identifier: Apache-2.0
// DirectoryPointer: the latest checkpoint according to a directory. Programs
// leave a file there with a name or number, or a symbolic link. Any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_PARTS_DIRECTORY_POINTER_H_
#define DCP_CHECKPOINT_DIALECTS_PARTS_DIRECTORY_POINTER_H_

#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"

namespace dcp {

struct DirectoryPointer {
  std::string name;    // the file's or link's
  std::string target;  // something else in the same directory
};

// Composer's link latest-rank0.pt, to a file or a directory; nullopt without
// one. FailedPrecondition if it leads out of the directory.
absl::StatusOr<std::optional<DirectoryPointer>> FindRankLink(
    const SourceDirectory& directory);

// The target of latest (a file with a name, or a link) or of
// latest_checkpointed_iteration.txt (Megatron-LM, ByteCheckpoint, verl: the
// number in iter_0000100 or global_step_100, or "release"), whichever exists;
// nullopt without either. NotFound if the target is missing, DataLoss if the
// file has something else in it, FailedPrecondition for a link that leads out
// of the directory.
absl::StatusOr<std::optional<DirectoryPointer>> FindPointer(
    const SourceDirectory& directory, const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_PARTS_DIRECTORY_POINTER_H_
