// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/thread.h"

namespace dcp {
namespace {

class Loop {
 public:
  Loop(size_t count, absl::FunctionRef<absl::Status(size_t)> body)
      : count_(count), body_(body) {}

  void Run() {
    for (size_t i = next_++; i < count_ && !failed_; i = next_++) {
      const absl::Status status = body_(i);
      if (status.ok()) continue;
      failed_ = true;
      absl::MutexLock lock(&mutex_);
      first_error_.Update(status);
    }
  }

  absl::Status first_error() {
    absl::MutexLock lock(&mutex_);
    return first_error_;
  }

 private:
  const size_t count_;
  const absl::FunctionRef<absl::Status(size_t)> body_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  absl::Mutex mutex_;
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status ParallelFor(size_t count, uint32_t num_threads,
                         absl::FunctionRef<absl::Status(size_t)> body) {
  Loop loop(count, body);
  {
    std::vector<Thread> threads;
    const size_t most = std::min<size_t>(num_threads, count);
    for (size_t i = 1; i < most; ++i) {
      absl::StatusOr<Thread> thread = Thread::Start([&] { loop.Run(); });
      // The other threads do this thread's work.
      if (!thread.ok()) break;
      threads.push_back(*std::move(thread));
    }
    loop.Run();
  }  // joins
  return loop.first_error();
}

}  // namespace dcp
