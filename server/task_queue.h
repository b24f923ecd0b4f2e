// TaskQueue: a fixed number of threads for what may block on a disk and belongs
// to no stream's payload: opening, locating, checking. Tasks begin in their
// order. Thread-safe.
#ifndef SERVER_TASK_QUEUE_H_
#define SERVER_TASK_QUEUE_H_

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

  // ResourceExhausted when too many wait, Unavailable after Stop: `task` is
  // then destroyed, not run.
  absl::Status Post(absl::AnyInvocable<void()> task);

  // Runs what waits and ends the threads.
  void Stop();

 private:
  void Run();

  const size_t max_waiting_;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::deque<absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;  // last: they use the rest
};

}  // namespace dcp::server

#endif  // SERVER_TASK_QUEUE_H_
