// StateDir: the directory where a server remembers its jobs, held with a lock
// so that no second server works on the same jobs. The lock ends with the
// process, however that ends. Any thread.
#ifndef SERVER_STATE_DIR_H_
#define SERVER_STATE_DIR_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/access.h"

namespace dcp::server {

class StateDir {
 public:
  // Makes the directory, for this user only, where it is not there; its parent
  // must be. InvalidArgument where it is below one of the roots, where clients
  // could read or replace what is in it; FailedPrecondition where another
  // server has it.
  static absl::StatusOr<StateDir> Open(const std::string& path,
                                       const std::vector<Root>& roots);
  // Whether Open would succeed if no other server had it. Makes nothing.
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

#endif  // SERVER_STATE_DIR_H_
