// SPDX-License-Identifier: Apache-2.0
// TaskQueue: threads for work that may block on a disk or take long: opening,
// locating, checking, planning. A thread starts when it is first needed, and
// stays. Clients take turns, and one client's tasks begin in the order of Post.
// Thread-safe.
#ifndef SERVER_PROCESS_TASK_QUEUE_H_
#define SERVER_PROCESS_TASK_QUEUE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/thread.h"
#include "server/process/fair_queue.h"

namespace dcp::server {

// For work that belongs to no client.
inline constexpr char kNoClient[] = "";

class TaskQueue {
 public:
  struct Limits {
    size_t num_threads = 1;
    // Threads that one client may use at a time. With fewer than `num_threads`
    // no client can hold up the others by tasks that take long.
    size_t per_client = 1;
    // Tasks that wait while all threads are busy. One client may have three
    // quarters of them, so that it does not use up the places of the others.
    size_t max_waiting = 1;
    // Whether the threads have a low priority: for tasks that calculate for
    // long, such as plans.
    bool low_priority = false;
  };

  explicit TaskQueue(const Limits& limits);
  ~TaskQueue() { Stop(); }
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // ResourceExhausted if too many tasks wait, or there is no thread and the
  // system starts none; Unavailable after Stop. In all cases `task` is
  // destroyed without a call.
  absl::Status Post(const std::string& client, absl::AnyInvocable<void()> task);

  // Runs the waiting tasks and ends the threads.
  void Stop();

 private:
  struct Task {
    std::string client;
    absl::AnyInvocable<void()> run;
  };

  absl::Status CheckRoom(const std::string& client) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the next task that may run; nothing if there is none.
  std::optional<Task> Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  const Limits limits_;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  FairQueue<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  // How many tasks of a client run; none is 0.
  absl::flat_hash_map<std::string, size_t> num_running_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  size_t num_idle_ ABSL_GUARDED_BY(mutex_) = 0;  // threads that wait for a task
  // Last: they use the other members.
  std::vector<Thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_PROCESS_TASK_QUEUE_H_
