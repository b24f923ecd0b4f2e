// TaskQueue: a fixed number of threads for work that may block on a disk,
// except for reading the payload of streams: opening, locating, checking. Tasks
// begin in the order of Post. Thread-safe.
#ifndef SERVER_PROCESS_TASK_QUEUE_H_
#define SERVER_PROCESS_TASK_QUEUE_H_

#include <cstddef>
#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace dcp::server {

class TaskQueue {
 public:
  // At most `max_waiting` tasks wait while all threads are busy.
  TaskQueue(size_t num_threads, size_t max_waiting);
  ~TaskQueue() { Stop(); }
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // ResourceExhausted if too many tasks wait, Unavailable after Stop; in both
  // cases `task` is destroyed without a call.
  absl::Status Post(absl::AnyInvocable<void()> task);

  // Runs the waiting tasks and ends the threads.
  void Stop();

 private:
  void Run();

  const size_t max_waiting_;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::deque<absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;  // last: they use the other members
};

}  // namespace dcp::server

#endif  // SERVER_PROCESS_TASK_QUEUE_H_
