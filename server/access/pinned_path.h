// SPDX-License-Identifier: Apache-2.0
// PinnedPath: a place below a root, held by a descriptor, so that no link and
// no rename can redirect an operation elsewhere. openat2(2) walks the path from
// the root without following symbolic links; Client::Locate has resolved these
// before. In an object store, where a name leads only to the object, PinnedPath
// is the name. Needs Linux 5.6 and /proc. Thread-compatible; opening looks at
// the disk, and so may block.
#ifndef SERVER_ACCESS_PINNED_PATH_H_
#define SERVER_ACCESS_PINNED_PATH_H_

#include <string>

#include "absl/status/statusor.h"

namespace dcp::server {

// The place to which a path leads.
struct Location {
  std::string root;  // the real path of the root that it lies below
  std::string path;  // without symbolic links as far as it exists
  // The path of the root as the operator wrote it. Clients learn only this one.
  std::string root_name = {};

  // `text` with the root's name in place of the real path.
  std::string WithClientPaths(absl::string_view text) const;
};

class PinnedPath {
 public:
  // Opens the directory at `location`. Errors are errno's; PermissionDenied if
  // a link has appeared on the path since it was located; Unimplemented if the
  // kernel, or the seccomp profile of a container, does not provide openat2.
  static absl::StatusOr<PinnedPath> OpenDirectory(const Location& location);
  // Opens the parent directory of an entry, which may not exist. The entry may
  // be a link: the caller must not follow it.
  static absl::StatusOr<PinnedPath> OpenEntry(const Location& location);

  PinnedPath(PinnedPath&& other) noexcept;
  PinnedPath& operator=(PinnedPath&&) = delete;
  ~PinnedPath();

  // A path that refers to that place as long as this lives.
  const std::string& name() const { return name_; }

 private:
  PinnedPath(int fd, std::string name);

  int fd_;
  const std::string name_;
};

}  // namespace dcp::server

#endif  // SERVER_ACCESS_PINNED_PATH_H_
