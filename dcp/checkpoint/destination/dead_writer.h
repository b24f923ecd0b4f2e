// SPDX-License-Identifier: Apache-2.0
// Removes what writers left that died while they held the lock of a
// destination. The caller holds that lock now, so nobody else is using the
// files.
#ifndef DCP_CHECKPOINT_DESTINATION_DEAD_WRITER_H_
#define DCP_CHECKPOINT_DESTINATION_DEAD_WRITER_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Removes the files of a DCP writer in the directory `path`, all of which it
// had made (DestinationLock::left), unless its checkpoint had appeared.
absl::Status RemoveLeftInside(FileSystem& fs, absl::string_view path);

// Removes the siblings of the file or directory `path` that writers had
// prepared. One that cannot be removed does not affect this run and is only
// logged.
void RemoveLeftBeside(FileSystem& fs, absl::string_view path);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_DEAD_WRITER_H_
