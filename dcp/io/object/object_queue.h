// SPDX-License-Identifier: Apache-2.0
// ObjectQueue: an IoQueue in which each request becomes one request to a store,
// at once.
#ifndef DCP_IO_OBJECT_OBJECT_QUEUE_H_
#define DCP_IO_OBJECT_OBJECT_QUEUE_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "dcp/io/io_queue.h"
#include "dcp/io/object/object_store.h"

namespace dcp {

class ObjectQueue final : public IoQueue {
 public:
  // Begins a request, and calls `done` on a thread of the store.
  using Start = std::function<void(
      const IoRequest& request, std::stop_token stop, ObjectStore::Done done)>;

  ObjectQueue(Start start, uint32_t depth)
      : start_(std::move(start)), depth_(depth) {}
  ~ObjectQueue() override;

  uint32_t depth() const override { return depth_; }
  uint32_t in_flight() const override { return in_flight_; }
  absl::Status Submit(IoRequest* request) override;
  absl::Status Reap(std::vector<IoRequest*>& done) override;
  void Cancel() override;

  // Like Reap, but does not wait.
  void ReapEnded(std::vector<IoRequest*>& done);

 private:
  void Ended(IoRequest* request, const absl::Status& status);

  const Start start_;
  const uint32_t depth_;
  uint32_t in_flight_ = 0;

  absl::Mutex mutex_;
  absl::CondVar ended_signal_;
  std::vector<IoRequest*> ended_ ABSL_GUARDED_BY(mutex_);
  std::stop_source stop_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp

#endif  // DCP_IO_OBJECT_OBJECT_QUEUE_H_
