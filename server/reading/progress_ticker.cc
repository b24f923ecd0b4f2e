// SPDX-License-Identifier: Apache-2.0

#include "server/reading/progress_ticker.h"

#include "dcp/base/steady_time.h"
#include "proto/rpc_time.h"

namespace dcp::server {

std::shared_ptr<ProgressTicker> ProgressTicker::Start(
    absl::Duration interval, Tell tell, absl::Duration stall_timeout,
    Stalled stalled) {
  std::shared_ptr<ProgressTicker> ticker(new ProgressTicker(
      interval, std::move(tell), stall_timeout, std::move(stalled)));
  ticker->Arm();
  return ticker;
}

// Makes a new alarm for each tick, because the callback of an alarm cannot set
// that alarm.
void ProgressTicker::Arm() {
  std::unique_ptr<grpc::Alarm> last;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  if (stopped_) return;
  last = std::move(alarm_);
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(RpcTimeIn(interval_), [self = shared_from_this()](bool expired) {
    if (!expired) return;
    self->Tick();
    self->Arm();
  });
}

void ProgressTicker::Tick() {
  tessera::v1::ReadProgress progress;
  progress.set_bytes_done(stats_.bytes_read.load());
  progress.set_bytes_total(total_bytes_.load());
  tell_(progress);
  const absl::Duration now = SteadyNow();
  const uint64_t read =
      stats_.bytes_read.load() + opening_.num_items_located.load();
  if (std::exchange(last_read_, read) != read) last_change_ = now;
  if (now - last_change_ > stall_timeout_) stalled_();
}

void ProgressTicker::Stop() {
  std::unique_ptr<grpc::Alarm> last;
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  last = std::move(alarm_);
}

}  // namespace dcp::server
