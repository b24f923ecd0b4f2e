// SPDX-License-Identifier: Apache-2.0
// Removes the files of writers that died while they held a destination's lock.
// The caller holds that lock now, so nobody else is using the files.
#ifndef DCP_CHECKPOINT_DESTINATION_DEAD_WRITER_H_
#define DCP_CHECKPOINT_DESTINATION_DEAD_WRITER_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Removes a DCP writer's files from the directory `path`, unless the checkpoint
// had appeared. The writer had made all files there (DestinationLock::left).
absl::Status RemoveLeftInside(FileSystem& fs, absl::string_view path);

// Removes the siblings of the file or directory `path` that writers had
// prepared. One that cannot be removed does not affect this run and is only
// logged.
void RemoveLeftSiblings(FileSystem& fs, absl::string_view path);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_DEAD_WRITER_H_
