// SPDX-License-Identifier: Apache-2.0

#include "server/access/state_dir.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"

namespace dcp::server {
namespace {

constexpr absl::string_view kLockName = "lock";

absl::Status RefuseStateDir(absl::string_view path, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("state-dir ", path, ": ", why));
}

// The real path of the directory, which must exist.
absl::StatusOr<std::string> RealPath(const std::string& path,
                                     const std::vector<Root>& roots) {
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr) {
    return RefuseStateDir(path, strerror(errno));
  }
  for (const Root& root : roots) {
    char real_root[PATH_MAX];
    if (realpath(root.path.c_str(), real_root) == nullptr) continue;
    const std::string below =
        absl::StrCat(real_root, absl::EndsWith(real_root, "/") ? "" : "/");
    if (absl::StartsWith(absl::StrCat(real, "/"), below)) {
      return RefuseStateDir(path,
                            absl::StrCat("lies below the root ", root.path));
    }
  }
  return std::string(real);
}

}  // namespace

absl::StatusOr<StateDir> StateDir::Open(const std::string& path,
                                        const std::vector<Root>& roots) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return RefuseStateDir(path, strerror(errno));
  }
  DCP_ASSIGN_OR_RETURN(const std::string real, RealPath(path, roots));
  const std::string lock = absl::StrCat(real, "/", kLockName);
  const int fd =
      open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return RefuseStateDir(lock, strerror(errno));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return absl::FailedPreconditionError(
        absl::StrCat("state-dir ", path, ": another server uses it"));
  }
  return StateDir(real, fd);
}

absl::Status StateDir::Check(const std::string& path,
                             const std::vector<Root>& roots) {
  struct stat info;
  const bool exists = stat(path.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) return RefuseStateDir(path, strerror(errno));
  if (exists && !S_ISDIR(info.st_mode))
    return RefuseStateDir(path, strerror(ENOTDIR));
  // If it does not exist, Open would create it in the parent.
  const std::string directory =
      exists ? path : absl::StrCat(path.substr(0, path.rfind('/')), "/");
  DCP_RETURN_IF_ERROR(RealPath(directory, roots).status());
  if (access(directory.c_str(), W_OK | X_OK) != 0) {
    return RefuseStateDir(directory, strerror(errno));
  }
  return absl::OkStatus();
}

StateDir::~StateDir() {
  if (lock_ >= 0) close(lock_);
}

}  // namespace dcp::server
