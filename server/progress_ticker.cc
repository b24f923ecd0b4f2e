#include "server/progress_ticker.h"

#include "absl/time/clock.h"

namespace dcp::server {

std::shared_ptr<ProgressTicker> ProgressTicker::Start(absl::Duration interval,
                                                      Tell tell) {
  std::shared_ptr<ProgressTicker> ticker(
      new ProgressTicker(interval, std::move(tell)));
  ticker->Arm();
  return ticker;
}

// A new alarm for each tick: one cannot be set in its own call.
void ProgressTicker::Arm() {
  std::unique_ptr<grpc::Alarm> last;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  if (stopped_) return;
  last = std::move(alarm_);
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(absl::ToChronoTime(absl::Now() + interval_),
              [self = shared_from_this()](bool expired) {
                if (!expired) return;
                tessera::v1::ReadProgress progress;
                progress.set_bytes_done(self->stats_.bytes_read.load());
                progress.set_bytes_total(self->total_bytes_.load());
                self->tell_(progress);
                self->Arm();
              });
}

void ProgressTicker::Stop() {
  std::unique_ptr<grpc::Alarm> last;
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  last = std::move(alarm_);
}

}  // namespace dcp::server
