// SPDX-License-Identifier: Apache-2.0
// PacedQueue: a queue that begins writes at a limited rate, so that a transfer
// leaves bandwidth to others. For the thread of the queue below, except Cancel.
#ifndef DCP_IO_PACED_QUEUE_H_
#define DCP_IO_PACED_QUEUE_H_

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/base/steady_time.h"
#include "dcp/io/io_queue.h"

namespace dcp {

class PacedQueue final : public IoQueue {
 public:
  // Writes begin at `max_rate` bytes a second at most, on average; 0 means no
  // limit. `queue` must outlive this object.
  PacedQueue(IoQueue& queue, uint64_t max_rate)
      : queue_(queue), max_rate_(max_rate) {}

  uint32_t depth() const override { return queue_.depth(); }
  uint32_t in_flight() const override { return queue_.in_flight(); }
  // Blocks until a write may begin, or Cancel is called. Reads do not wait.
  absl::Status Submit(IoRequest* request) override;
  absl::Status Reap(std::vector<IoRequest*>& done) override {
    return queue_.Reap(done);
  }
  void Cancel() override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void AwaitTurn(uint64_t num_bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  IoQueue& queue_;
  const uint64_t max_rate_;
  // The earliest time for the next write, a time from SteadyNow.
  absl::Duration next_ = absl::ZeroDuration();
  absl::Mutex mutex_;
  SteadyCondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dcp

#endif  // DCP_IO_PACED_QUEUE_H_
