// SPDX-License-Identifier: Apache-2.0
// PendingCalls: limits one thread's concurrent calls to an ObjectStore, and
// lets the thread wait for them. Header-only.
#ifndef DCP_IO_OBJECT_PENDING_CALLS_H_
#define DCP_IO_OBJECT_PENDING_CALLS_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace dcp {

class PendingCalls {
 public:
  explicit PendingCalls(uint32_t most) : most_(most) {}
  ~PendingCalls() { Wait().IgnoreError(); }
  PendingCalls(const PendingCalls&) = delete;
  PendingCalls& operator=(const PendingCalls&) = delete;

  // Waits until one more call may start, and counts it. After a failure it
  // returns the first error and counts no call: the caller must start none.
  absl::Status Enter() {
    absl::MutexLock lock(&mutex_);
    while (status_.ok() && num_running_ >= most_) changed_.Wait(&mutex_);
    if (status_.ok()) ++num_running_;
    return status_;
  }

  // A call has ended. Any thread.
  void Leave(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    --num_running_;
    status_.Update(status);
    changed_.Signal();
  }

  // Waits for all calls and returns the first error.
  absl::Status Wait() {
    absl::MutexLock lock(&mutex_);
    while (num_running_ > 0) changed_.Wait(&mutex_);
    return status_;
  }

 private:
  const uint32_t most_;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  uint32_t num_running_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp

#endif  // DCP_IO_OBJECT_PENDING_CALLS_H_
