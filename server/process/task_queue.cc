// SPDX-License-Identifier: Apache-2.0

#include "server/process/task_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/process/refusal.h"

namespace dcp::server {

TaskQueue::TaskQueue(const Limits& limits) : limits_(limits) {}

void TaskQueue::Stop() {
  std::vector<Thread> ended;  // joined without the lock
  absl::MutexLock lock(&mutex_);
  ending_ = true;
  changed_.SignalAll();
  ended.swap(threads_);
}

absl::Status TaskQueue::CheckRoom(const std::string& client) const {
  const auto refuse = [](size_t limit, absl::string_view message) {
    return LimitReached({.name = "requests-waiting", .value = limit}, message);
  };
  if (tasks_.size() >= limits_.max_waiting) {
    return refuse(
        limits_.max_waiting,
        absl::StrCat(tasks_.size(), " requests already wait for a thread"));
  }
  const size_t most_of_client =
      std::max<size_t>(1, limits_.max_waiting - limits_.max_waiting / 4);
  if (client == kNoClient || tasks_.size(client) < most_of_client) {
    return absl::OkStatus();
  }
  return refuse(most_of_client,
                absl::StrCat(tasks_.size(client), " requests of ", client,
                             " already wait for a thread, which is the limit "
                             "for one client"));
}

absl::Status TaskQueue::Post(const std::string& client,
                             absl::AnyInvocable<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (ending_) return ServerDraining();
  if (absl::Status room = CheckRoom(client); !room.ok()) return room;
  if (tasks_.size() >= num_idle_ && threads_.size() < limits_.num_threads) {
    absl::StatusOr<Thread> thread = Thread::Start([this] { Run(); });
    // With fewer threads the task waits for longer.
    if (!thread.ok() && threads_.empty()) return thread.status();
    if (thread.ok()) threads_.push_back(*std::move(thread));
  }
  tasks_.Push(client, Task{.client = client, .run = std::move(task)});
  changed_.Signal();
  return absl::OkStatus();
}

std::optional<TaskQueue::Task> TaskQueue::Take() {
  return tasks_.PopIf([this](const std::string& client) {
    mutex_.AssertHeld();
    const auto running = num_running_.find(client);
    return running == num_running_.end() ||
           running->second < limits_.per_client;
  });
}

void TaskQueue::Run() {
  if (limits_.low_priority) Thread::LowerPriority();
  absl::MutexLock lock(&mutex_);
  while (true) {
    std::optional<Task> task = Take();
    if (!task.has_value()) {
      // The thread that runs the last task of a client takes the client's next.
      if (ending_) return;
      ++num_idle_;
      changed_.Wait(&mutex_);
      --num_idle_;
      continue;
    }
    ++num_running_[task->client];
    mutex_.Unlock();
    task->run();
    task->run = nullptr;  // the owner may call back
    mutex_.Lock();
    if (--num_running_[task->client] == 0) num_running_.erase(task->client);
  }
}

}  // namespace dcp::server
