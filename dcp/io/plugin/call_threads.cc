// Tested by tests/dcp/io/plugin/plugin_store_test.cc.
#include "dcp/io/plugin/call_threads.h"

#include <utility>

namespace dcp {

CallThreads::CallThreads(uint32_t num_threads) {
  for (uint32_t i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

CallThreads::~CallThreads() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void CallThreads::Add(Call call) {
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
