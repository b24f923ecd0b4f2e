// SPDX-License-Identifier: Apache-2.0
// RootThreads: separate threads for each of the server's roots, for work that
// may block on a disk, except for reading the payload of streams. A file system
// that does not answer, such as a mount without a server, blocks only the
// threads of that root. Thread-safe.
#ifndef SERVER_ACCESS_ROOT_THREADS_H_
#define SERVER_ACCESS_ROOT_THREADS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/access/access.h"
#include "server/process/task_queue.h"

namespace dcp::server {

class RootThreads {
 public:
  // `limits` apply to each root separately.
  RootThreads(const Access& access, const TaskQueue::Limits& limits);
  // Calls Stop. Checkpoints that are dropped later are closed on the thread
  // that drops them.
  ~RootThreads() { Stop(); }
  RootThreads(const RootThreads&) = delete;
  RootThreads& operator=(const RootThreads&) = delete;

  // The threads for a client's `path`: those of the root that contains it by
  // name, because this does not look at the disk. A link may lead from there to
  // another root.
  const std::shared_ptr<TaskQueue>& QueueFor(const Client& client,
                                             absl::string_view path);
  // The same for a path without symbolic links, for any client.
  const std::shared_ptr<TaskQueue>& QueueFor(absl::string_view real_path);

  // Runs the waiting tasks and ends the threads.
  void Stop();

 private:
  // One queue for each real path of a root, innermost roots first, and a last
  // one for paths below no root, which are refused without looking at the
  // disk. Owners: this, and checkpoints, which may be closed
  // later.
  std::vector<std::pair<std::string, std::shared_ptr<TaskQueue>>> queues_;
};

}  // namespace dcp::server

#endif  // SERVER_ACCESS_ROOT_THREADS_H_
