// SPDX-License-Identifier: Apache-2.0
// DirectoryPointer: what a directory says is its latest checkpoint. Programs
// leave a file with its name or number there, or a symbolic link. Any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_PARTS_DIRECTORY_POINTER_H_
#define DCP_CHECKPOINT_DIALECTS_PARTS_DIRECTORY_POINTER_H_

#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"

namespace dcp {

struct DirectoryPointer {
  std::string name;    // of the file or link
  std::string target;  // something else in the same directory
};

// A link latest-rank0.pt of Composer, to a file or a directory; nullopt without
// one. FailedPrecondition if it leads out of the directory.
absl::StatusOr<std::optional<DirectoryPointer>> FindRankLink(
    const SourceDirectory& directory);

// The target of latest (a file with a name, or a link) or of
// latest_checkpointed_iteration.txt (Megatron-LM, ByteCheckpoint, verl: the
// number of iter_0000100 or global_step_100, or "release"), whichever is
// there; nullopt without either. NotFound if its target is missing, DataLoss if
// the file has something else in it, FailedPrecondition for a link that leads
// out of the directory.
absl::StatusOr<std::optional<DirectoryPointer>> FindPointer(
    const SourceDirectory& directory, const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_PARTS_DIRECTORY_POINTER_H_
