// SPDX-License-Identifier: Apache-2.0
// Lock files: FileSystem::Lock on flock(2). Any thread.
#ifndef DCP_IO_POSIX_LOCK_H_
#define DCP_IO_POSIX_LOCK_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"

namespace dcp {

// As FileSystem::Lock, except that errors do not name `path`.
absl::StatusOr<FileLock> TakePosixLock(const std::string& path,
                                       absl::string_view note);

// Whether the name still leads to the open file.
bool IsSameFile(const std::string& path, int fd);

}  // namespace dcp

#endif  // DCP_IO_POSIX_LOCK_H_
