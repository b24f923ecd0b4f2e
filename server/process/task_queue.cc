// SPDX-License-Identifier: Apache-2.0

#include "server/process/task_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/process/refusal.h"

namespace dcp::server {

TaskQueue::TaskQueue(size_t num_threads, size_t max_waiting)
    : max_threads_(num_threads), max_waiting_(max_waiting) {}

void TaskQueue::Stop() {
  std::vector<Thread> ended;  // joined without the lock
  absl::MutexLock lock(&mutex_);
  ending_ = true;
  changed_.SignalAll();
  ended.swap(threads_);
}

absl::Status TaskQueue::Post(absl::AnyInvocable<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (ending_) return ServerDraining();
  if (tasks_.size() >= max_waiting_) {
    return LimitReached(
        {.name = "requests-waiting", .value = max_waiting_},
        absl::StrCat(tasks_.size(), " requests already wait for a thread"));
  }
  if (tasks_.size() >= num_idle_ && threads_.size() < max_threads_) {
    absl::StatusOr<Thread> thread = Thread::Start([this] { Run(); });
    // With fewer threads the task waits for longer.
    if (!thread.ok() && threads_.empty()) return thread.status();
    if (thread.ok()) threads_.push_back(*std::move(thread));
  }
  tasks_.push_back(std::move(task));
  changed_.Signal();
  return absl::OkStatus();
}

void TaskQueue::Run() {
  while (true) {
    absl::AnyInvocable<void()> task;
    {
      absl::MutexLock lock(&mutex_);
      ++num_idle_;
      while (tasks_.empty() && !ending_) changed_.Wait(&mutex_);
      --num_idle_;
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace dcp::server
