// SPDX-License-Identifier: Apache-2.0
// StreamQueue: one stream's work. A separate thread does it in the order of
// issue. Any thread; never destroyed, because the thread may outlive main.
#ifndef TESTS_TESTING_SIM_DEVICE_STREAM_QUEUE_H_
#define TESTS_TESTING_SIM_DEVICE_STREAM_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <string>

namespace sim {

class StreamQueue {
 public:
  explicit StreamQueue(uint64_t seed);
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;

  // Returns the work's position: the first is 1. `what` is for reports.
  uint64_t Push(std::string what, std::function<void()> work);
  uint64_t num_issued() const;
  bool IsDone(uint64_t position) const;
  // Throws a piece of work's error (c10::Error), once, as a GPU reports it.
  void WaitUntilDone(uint64_t position);

  // How long the work under way has taken so far; 0 without any.
  std::chrono::seconds Age() const;
  // "all-gather (12 s), then aten::add, (event), and 3 more"; empty without
  // work.
  std::string Describe() const;

 private:
  struct Item {
    std::string what;
    std::function<void()> work;
  };

  [[noreturn]] void Run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;  // for the queue's thread
  std::deque<Item> items_;  // the first is under way
  std::chrono::steady_clock::time_point began_;
  uint64_t num_issued_ = 0;
  uint64_t num_done_ = 0;
  std::string error_;  // the first error that no wait has reported
};

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_STREAM_QUEUE_H_
