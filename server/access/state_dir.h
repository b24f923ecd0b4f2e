// SPDX-License-Identifier: Apache-2.0
// StateDir: the directory where a server stores jobs, locked so that no second
// server works on the same jobs. The lock ends with the process, even if that
// crashes. Any thread.
#ifndef SERVER_ACCESS_STATE_DIR_H_
#define SERVER_ACCESS_STATE_DIR_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/access/access.h"

namespace dcp::server {

class StateDir {
 public:
  // Creates the directory, accessible only for this user, if it does not exist;
  // the parent must exist. InvalidArgument if it is below one of the roots,
  // where clients could read or replace the files; FailedPrecondition if
  // another server has locked it.
  static absl::StatusOr<StateDir> Open(const std::string& path,
                                       const std::vector<Root>& roots);
  // Whether Open would succeed if no other server had locked it. Creates
  // nothing.
  static absl::Status Check(const std::string& path,
                            const std::vector<Root>& roots);
  StateDir(StateDir&& other) noexcept
      : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}
  StateDir& operator=(StateDir&&) = delete;
  ~StateDir();

  // Without symbolic links.
  const std::string& path() const { return path_; }

 private:
  StateDir(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  std::string path_;
  int lock_;  // a file descriptor; -1: moved from
};

}  // namespace dcp::server

#endif  // SERVER_ACCESS_STATE_DIR_H_
