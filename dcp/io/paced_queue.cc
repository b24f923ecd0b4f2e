// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/paced_queue.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "dcp/base/steady_time.h"

namespace dcp {

absl::Status PacedQueue::Submit(IoRequest* request) {
  if (max_rate_ != 0 && request->op == IoRequest::Op::kWrite) {
    AwaitTurn(request->length);
  }
  return queue_.Submit(request);
}

void PacedQueue::AwaitTurn(uint64_t num_bytes) {
  {
    absl::MutexLock lock(&mutex_);
    while (!cancelled_ && !changed_.WaitUntil(&mutex_, next_)) {
    }
  }
  // A writer that was late does not catch up: it would take the bandwidth that
  // it is to leave.
  next_ = std::max(next_, SteadyNow()) +
          absl::Seconds(static_cast<double>(num_bytes) /
                        static_cast<double>(max_rate_));
}

void PacedQueue::Cancel() {
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    changed_.SignalAll();
  }
  queue_.Cancel();
}

}  // namespace dcp
