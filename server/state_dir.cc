#include "server/state_dir.h"

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

namespace dcp::server {
namespace {

constexpr absl::string_view kLockName = "lock";

absl::Status Refuse(absl::string_view path, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("state-dir ", path, ": ", why));
}

}  // namespace

absl::StatusOr<StateDir> StateDir::Open(const std::string& path,
                                        const std::vector<Root>& roots) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Refuse(path, strerror(errno));
  }
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr) {
    return Refuse(path, strerror(errno));
  }
  for (const Root& root : roots) {
    char real_root[PATH_MAX];
    if (realpath(root.path.c_str(), real_root) == nullptr) continue;
    const std::string below =
        absl::StrCat(real_root, absl::EndsWith(real_root, "/") ? "" : "/");
    if (absl::StartsWith(absl::StrCat(real, "/"), below)) {
      return Refuse(path, absl::StrCat("lies below the root ", root.path));
    }
  }
  const std::string lock = absl::StrCat(real, "/", kLockName);
  const int fd =
      open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Refuse(lock, strerror(errno));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return absl::FailedPreconditionError(
        absl::StrCat("state-dir ", path, ": another server uses it"));
  }
  return StateDir(real, fd);
}

StateDir::~StateDir() {
  if (lock_ >= 0) close(lock_);
}

}  // namespace dcp::server
