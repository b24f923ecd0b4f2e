// PinnedPath: a place below a root, held by a descriptor, so that no link and
// no rename can lead elsewhere what is done there. The way from the root is
// walked by openat2(2) without a symbolic link; who walks it found out before
// where links lead (Client::Locate). Needs Linux 5.6 and /proc. Thread-
// compatible; opening looks at the disk, and so may block.
#ifndef SERVER_PINNED_PATH_H_
#define SERVER_PINNED_PATH_H_

#include <string>

#include "absl/status/statusor.h"

namespace dcp::server {

// Where a path leads.
struct Location {
  std::string root;  // the real path of the root that it lies below
  std::string path;  // without symbolic links as far as it exists
};

class PinnedPath {
 public:
  // The directory at `location`. Errors are errno's; PermissionDenied where a
  // link has come into the way since the location was found; Unimplemented
  // where the kernel, or the seccomp profile of a container, has no openat2.
  static absl::StatusOr<PinnedPath> OpenDirectory(const Location& location);
  // An entry, existing or not, of a directory that is held. It may be a link:
  // who uses it must not follow it.
  static absl::StatusOr<PinnedPath> OpenEntry(const Location& location);

  PinnedPath(PinnedPath&& other) noexcept;
  PinnedPath& operator=(PinnedPath&&) = delete;
  ~PinnedPath();

  // A path that leads there as long as this lives.
  const std::string& name() const { return name_; }

 private:
  PinnedPath(int fd, std::string name);

  int fd_;
  const std::string name_;
};

}  // namespace dcp::server

#endif  // SERVER_PINNED_PATH_H_
