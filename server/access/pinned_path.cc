// SPDX-License-Identifier: Apache-2.0
// An O_PATH descriptor has the path /proc/self/fd/N, which leads to the same
// place even if the place is renamed. Operations that take paths therefore work
// on the place behind the descriptor, and there is no need for a second set of
// operations that take descriptors.
#include "server/access/pinned_path.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "dcp/base/status.h"
#include "dcp/io/file_system.h"
#include "dcp/io/object/object_url.h"
#include "dcp/io/posix_error.h"

namespace dcp::server {
namespace {

// Concurrent renames on the machine may make the kernel abort a walk.
constexpr int kMaxTries = 100;

// Opens the directory at `path` without following links; returns -1 with errno
// on an error.
int OpenWithoutLinks(int directory, const std::string& path, uint64_t resolve) {
  open_how how = {};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = resolve | RESOLVE_NO_SYMLINKS;
  int64_t fd = -1;
  for (int i = 0; i < kMaxTries; ++i) {
    fd = syscall(SYS_openat2, directory, path.c_str(), &how, sizeof(how));
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) break;
  }
  return static_cast<int>(fd);
}

absl::Status WalkError(int error, const std::string& path) {
  if (error == ELOOP || error == EXDEV) {
    return absl::PermissionDeniedError(absl::StrCat(
        "path ", path, " leads through a symbolic link that was just made"));
  }
  if (error == ENOSYS || error == EPERM) {
    return absl::UnimplementedError(absl::StrCat(
        path,
        ": openat2 is refused: the server requires Linux 5.6, and in a "
        "container a seccomp profile that allows openat2"));
  }
  return PosixError(error, path);
}

// The path relative to `root`, for a path at or below it.
std::string RelativeTo(const std::string& root, absl::string_view path) {
  if (root != "/") path.remove_prefix(root.size());
  while (!path.empty() && path.front() == '/') path.remove_prefix(1);
  return path.empty() ? "." : std::string(path);
}

absl::StatusOr<int> Walk(const std::string& root, const std::string& path) {
  // The operator chose the root's own path. A client's root, however, may lie
  // where others write, and may have been replaced since.
  const int top = OpenWithoutLinks(AT_FDCWD, root, 0);
  if (top < 0) return WalkError(errno, root);
  const int fd = OpenWithoutLinks(top, RelativeTo(root, path), RESOLVE_BENEATH);
  const int error = errno;
  close(top);
  if (fd < 0) return WalkError(error, path);
  return fd;
}

}  // namespace

std::string Location::WithClientPaths(absl::string_view text) const {
  if (root_name == root || root == "/") return std::string(text);
  return absl::StrReplaceAll(text, {{root, root_name}});
}

PinnedPath::PinnedPath(int fd, std::string name)
    : fd_(fd), name_(std::move(name)) {}

PinnedPath::PinnedPath(PinnedPath&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), name_(other.name_) {}

PinnedPath::~PinnedPath() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<PinnedPath> PinnedPath::OpenDirectory(const Location& location) {
  if (IsObjectUrl(location.root)) return PinnedPath(-1, location.path);
  DCP_ASSIGN_OR_RETURN(const int fd, Walk(location.root, location.path));
  return PinnedPath(fd, absl::StrCat("/proc/self/fd/", fd, "/."));
}

absl::StatusOr<PinnedPath> PinnedPath::OpenEntry(const Location& location) {
  if (IsObjectUrl(location.root)) return PinnedPath(-1, location.path);
  // The parent of a root may not be used. A root is not a link either.
  if (location.path == location.root) return OpenDirectory(location);
  DCP_ASSIGN_OR_RETURN(const int fd,
                       Walk(location.root, ParentDirectory(location.path)));
  return PinnedPath(
      fd, absl::StrCat("/proc/self/fd/", fd, "/", BaseName(location.path)));
}

}  // namespace dcp::server
