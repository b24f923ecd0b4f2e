// SPDX-License-Identifier: Apache-2.0
// TaskQueue: a number of threads for work that may block on a disk, except for
// reading the payload of streams: opening, locating, checking. A thread starts
// when it is first needed, and stays. Tasks begin in the order of Post.
// Thread-safe.
#ifndef SERVER_PROCESS_TASK_QUEUE_H_
#define SERVER_PROCESS_TASK_QUEUE_H_

#include <cstddef>
#include <deque>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/thread.h"

namespace dcp::server {

class TaskQueue {
 public:
  // At most `max_waiting` tasks wait while all threads are busy.
  TaskQueue(size_t num_threads, size_t max_waiting);
  ~TaskQueue() { Stop(); }
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // ResourceExhausted if too many tasks wait, or there is no thread and the
  // system starts none; Unavailable after Stop. In all cases `task` is
  // destroyed without a call.
  absl::Status Post(absl::AnyInvocable<void()> task);

  // Runs the waiting tasks and ends the threads.
  void Stop();

 private:
  void Run();

  const size_t max_threads_;
  const size_t max_waiting_;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::deque<absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  size_t num_idle_ ABSL_GUARDED_BY(mutex_) = 0;  // threads that wait for a task
  // Last: they use the other members.
  std::vector<Thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_PROCESS_TASK_QUEUE_H_
