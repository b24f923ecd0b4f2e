// SPDX-License-Identifier: Apache-2.0
// Explains that a path has no readable checkpoint: reports the contents found
// instead, and advice. Looks at names, and into one small file
// if the user needs facts from it. Any thread.
#ifndef DCP_CHECKPOINT_OPEN_NO_CHECKPOINT_H_
#define DCP_CHECKPOINT_OPEN_NO_CHECKPOINT_H_

#include <stop_token>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/io/file_system.h"

namespace dcp {

// For a directory without any dialect's signs. NotFound, also for a save that
// did not finish; FailedPrecondition, with at most ten names, for a folder with
// several checkpoints; Unimplemented for a checkpoint of another kind.
absl::Status WhyNoCheckpoint(const SourceDirectory& directory,
                             const std::stop_token& stop);

// OK unless the file name at `path` belongs to a file that contains a
// checkpoint or leads to one, but is not one: a .nemo archive, or Composer's
// .symlink.
absl::Status CheckFileName(FileSystem& fs, absl::string_view path,
                           const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_NO_CHECKPOINT_H_
