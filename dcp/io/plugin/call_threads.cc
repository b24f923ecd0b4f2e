// SPDX-License-Identifier: Apache-2.0
// Runs blocking calls on a fixed number of threads, in order.
// Tested by tests/dcp/io/plugin/plugin_store_test.cc.
#include "dcp/io/plugin/call_threads.h"

#include <utility>

#include "absl/status/statusor.h"

namespace dcp {

CallThreads::CallThreads(uint32_t num_threads) {
  for (uint32_t i = 0; i < num_threads; ++i) {
    absl::StatusOr<Thread> thread = Thread::Start([this] { Run(); });
    if (!thread.ok()) break;
    threads_.push_back(*std::move(thread));
  }
}

CallThreads::~CallThreads() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    changed_.SignalAll();
  }
  threads_.clear();  // joins
}

void CallThreads::Add(Call call) {
  if (threads_.empty()) return std::move(call)();
  absl::MutexLock lock(&mutex_);
  calls_.push_back(std::move(call));
  changed_.Signal();
}

void CallThreads::Run() {
  while (true) {
    Call call;
    {
      absl::MutexLock lock(&mutex_);
      while (calls_.empty() && !ending_) changed_.Wait(&mutex_);
      if (calls_.empty()) return;
      call = std::move(calls_.front());
      calls_.pop_front();
    }
    std::move(call)();
  }
}

}  // namespace dcp
