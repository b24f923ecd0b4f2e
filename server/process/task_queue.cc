#include "server/process/task_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/process/refusal.h"

namespace dcp::server {

TaskQueue::TaskQueue(size_t num_threads, size_t max_waiting)
    : max_waiting_(max_waiting) {
  for (size_t i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

void TaskQueue::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    changed_.SignalAll();
  }
  threads_.clear();  // joins
}

absl::Status TaskQueue::Post(absl::AnyInvocable<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (ending_) return ServerDraining();
  if (tasks_.size() >= max_waiting_) {
    return LimitReached(
        {.name = "requests-waiting", .value = max_waiting_},
        absl::StrCat(tasks_.size(), " requests already wait for a thread"));
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
      while (tasks_.empty() && !ending_) changed_.Wait(&mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace dcp::server
