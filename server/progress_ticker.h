// ProgressTicker: lets the client of a call that reads whole checkpoints hear
// from time to time how far it is. Thread-safe.
#ifndef SERVER_PROGRESS_TICKER_H_
#define SERVER_PROGRESS_TICKER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/io/pipeline.h"
#include "grpcpp/alarm.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp::server {

// How often a client hears of progress.
inline constexpr absl::Duration kProgressInterval = absl::Seconds(1);

// Watches a transfer and tells its progress from time to time, on threads of
// gRPC's, until Stop. Owners: who runs the transfer, and the alarm.
class ProgressTicker : public std::enable_shared_from_this<ProgressTicker> {
 public:
  using Tell = std::function<void(const tessera::v1::ReadProgress&)>;

  static std::shared_ptr<ProgressTicker> Start(absl::Duration interval,
                                               Tell tell);

  // For the transfer to count in.
  TransferStats& stats() { return stats_; }
  void set_total(uint64_t bytes) { total_bytes_.store(bytes); }

  // `tell` may be called once more.
  void Stop();

 private:
  ProgressTicker(absl::Duration interval, Tell tell)
      : interval_(interval), tell_(std::move(tell)) {}
  void Arm();

  const absl::Duration interval_;
  const Tell tell_;
  TransferStats stats_;
  std::atomic<uint64_t> total_bytes_{0};
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_PROGRESS_TICKER_H_
