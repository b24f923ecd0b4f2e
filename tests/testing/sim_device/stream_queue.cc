// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_device/stream_queue.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/collective_errors.h"
#include "tests/testing/sim_device/delay.h"
#include "tests/testing/sim_device/options.h"

namespace sim {
namespace {

constexpr size_t kMaxShown = 4;

}  // namespace

StreamQueue::StreamQueue(uint64_t seed) : random_(seed) {
  std::thread([this] { Run(); }).detach();
}

uint64_t StreamQueue::Push(std::string what, std::function<void()> work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (items_.empty()) began_ = std::chrono::steady_clock::now();
  items_.push_back({std::move(what), std::move(work)});
  changed_.notify_all();
  return ++num_issued_;
}

uint64_t StreamQueue::num_issued() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_issued_;
}

bool StreamQueue::IsDone(uint64_t position) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_done_ >= position;
}

void StreamQueue::WaitUntilDone(uint64_t position) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return num_done_ >= position; });
  const std::string error = std::exchange(error_, "");
  lock.unlock();
  TORCH_CHECK(error.empty(), error);
}

std::chrono::seconds StreamQueue::Age() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (items_.empty()) return std::chrono::seconds(0);
  return std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::steady_clock::now() - began_);
}

std::string StreamQueue::Describe() const {
  const std::chrono::seconds age = Age();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (items_.empty()) return "";
  std::string text =
      absl::StrCat(items_.front().what, " (", age.count(), " s)");
  for (size_t i = 1; i < std::min(items_.size(), kMaxShown); ++i) {
    absl::StrAppend(&text, i == 1 ? ", then " : ", ", items_[i].what);
  }
  if (items_.size() > kMaxShown) {
    absl::StrAppend(&text, ", and ", items_.size() - kMaxShown, " more");
  }
  return text;
}

void StreamQueue::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !items_.empty(); });
    std::function<void()> work = std::move(items_.front().work);
    lock.unlock();
    if (const int64_t most = options().max_delay_us; most > 0) {
      Delay(std::chrono::microseconds(random_() % static_cast<uint64_t>(most)));
    }
    const std::string error = fsdp::CatchErrorText(work);
    work = nullptr;
    lock.lock();
    items_.pop_front();
    began_ = std::chrono::steady_clock::now();
    if (error_.empty()) error_ = error;
    ++num_done_;
    changed_.notify_all();
  }
}

}  // namespace sim
