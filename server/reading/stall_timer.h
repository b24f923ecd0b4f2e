// SPDX-License-Identifier: Apache-2.0
// StallTimer: detects that a stream waits in vain, for a client that takes no
// message or for a disk that does not answer, because the stream would
// otherwise hold memory and files forever. Thread-safe.
#ifndef SERVER_READING_STALL_TIMER_H_
#define SERVER_READING_STALL_TIMER_H_

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/base/steady_time.h"
#include "grpcpp/alarm.h"

namespace dcp::server {

class StallTimer : public std::enable_shared_from_this<StallTimer> {
 public:
  // Owners: the caller, and the alarm.
  static std::shared_ptr<StallTimer> Create(absl::Duration timeout) {
    return std::shared_ptr<StallTimer>(new StallTimer(timeout));
  }

  // Calls `stalled` once, on a gRPC thread and without holding a lock, when a
  // wait reaches the timeout.
  void Start(std::function<void()> stalled);
  void BeginWait();
  void EndWait();
  // Afterwards `stalled` is not called, unless it is being called.
  void Stop();

 private:
  explicit StallTimer(absl::Duration timeout) : timeout_(timeout) {}
  void Arm(absl::Duration after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Look();

  const absl::Duration timeout_;
  absl::Mutex mutex_;
  std::function<void()> stalled_ ABSL_GUARDED_BY(mutex_);  // null: finished
  // A time of SteadyNow.
  absl::Duration waits_since_ ABSL_GUARDED_BY(mutex_) =
      absl::InfiniteDuration();
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_READING_STALL_TIMER_H_
