// RootThreads: threads for what may block on a disk and belongs to no stream's
// payload, for each root of the server its own. A file system that does not
// answer, such as a mount whose server is gone, keeps the threads of its own
// root and no others. Thread-safe.
#ifndef SERVER_ROOT_THREADS_H_
#define SERVER_ROOT_THREADS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/access.h"
#include "server/task_queue.h"

namespace dcp::server {

class RootThreads {
 public:
  // For the roots of the server. At most `max_waiting` tasks wait for each.
  RootThreads(const Access& access, size_t threads_per_root,
              size_t max_waiting);
  // As Stop: checkpoints that are closed later are closed by who drops them.
  ~RootThreads() { Stop(); }
  RootThreads(const RootThreads&) = delete;
  RootThreads& operator=(const RootThreads&) = delete;

  // The threads for what a client calls `path`: of the root that it lies below
  // by its name, which is all that can be told without a look at the disk. A
  // link may lead from there to another root.
  const std::shared_ptr<TaskQueue>& QueueOf(const Client& client,
                                            absl::string_view path);
  // The same for a path without symbolic links, whoever uses it.
  const std::shared_ptr<TaskQueue>& QueueOf(absl::string_view real_path);

  // Runs what waits and ends the threads.
  void Stop();

 private:
  // By the real path of the root, and one thread for paths below no root, which
  // are refused without a look at the disk. Innermost roots come first. Owners:
  // this, and checkpoints, which may be closed later.
  std::vector<std::pair<std::string, std::shared_ptr<TaskQueue>>> queues_;
};

}  // namespace dcp::server

#endif  // SERVER_ROOT_THREADS_H_
