// SPDX-License-Identifier: Apache-2.0
// An alarm for each message would cost more than the message itself. Instead,
// one alarm checks at intervals how long the current wait has lasted.
#include "server/reading/stall_timer.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "dcp/base/steady_time.h"
#include "proto/rpc_time.h"

namespace dcp::server {

void StallTimer::Start(std::function<void()> stalled) {
  absl::MutexLock lock(&mutex_);
  stalled_ = std::move(stalled);
  Arm(timeout_);
}

void StallTimer::BeginWait() {
  const absl::Duration now = SteadyNow();
  absl::MutexLock lock(&mutex_);
  waits_since_ = now;
}

void StallTimer::EndWait() {
  absl::MutexLock lock(&mutex_);
  waits_since_ = absl::InfiniteDuration();
}

void StallTimer::Stop() {
  std::function<void()> stalled;  // destroyed without the lock
  std::unique_ptr<grpc::Alarm> alarm;
  absl::MutexLock lock(&mutex_);
  stalled = std::exchange(stalled_, nullptr);
  alarm = std::move(alarm_);
}

void StallTimer::Arm(absl::Duration after) {
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(RpcTimeIn(after), [self = shared_from_this()](bool expired) {
    if (expired) self->Look();
  });
}

void StallTimer::Look() {
  std::function<void()> stalled;
  {
    const absl::Duration now = SteadyNow();
    absl::MutexLock lock(&mutex_);
    if (stalled_ == nullptr) return;
    const absl::Duration waited =
        std::max(now - waits_since_, absl::ZeroDuration());
    if (waited < timeout_) return Arm(timeout_ - waited);
    stalled = std::exchange(stalled_, nullptr);
  }
  stalled();
}

}  // namespace dcp::server
