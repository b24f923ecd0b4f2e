// SPDX-License-Identifier: Apache-2.0
// ProgressTicker: reports to the client, at intervals, how far a call has come
// that reads whole checkpoints. Tells the server when there is no progress,
// because a hanging disk blocks the thread that reads. Thread-safe.
#ifndef SERVER_READING_PROGRESS_TICKER_H_
#define SERVER_READING_PROGRESS_TICKER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/steady_time.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/pipeline.h"
#include "grpcpp/alarm.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp::server {

// How often a client is told of progress.
inline constexpr absl::Duration kProgressInterval = absl::Seconds(1);

// Watches a transfer and reports progress at intervals, on gRPC's threads,
// until Stop. Owners: the code that runs the transfer, and the alarm.
class ProgressTicker : public std::enable_shared_from_this<ProgressTicker> {
 public:
  using Tell = std::function<void(const tessera::v1::ReadProgress&)>;
  using Stalled = std::function<void()>;

  // Calls `stalled` at the first tick after nothing was read for
  // `stall_timeout`, and again at each further tick.
  static std::shared_ptr<ProgressTicker> Start(absl::Duration interval,
                                               Tell tell,
                                               absl::Duration stall_timeout,
                                               Stalled stalled);

  // The transfer counts in these.
  TransferStats& stats() { return stats_; }
  OpenProgress& opening() { return opening_; }
  void set_total(uint64_t bytes) { total_bytes_.store(bytes); }

  // After this, `tell` and `stalled` may each be called once more.
  void Stop();

 private:
  ProgressTicker(absl::Duration interval, Tell tell,
                 absl::Duration stall_timeout, Stalled stalled)
      : interval_(interval),
        tell_(std::move(tell)),
        stall_timeout_(stall_timeout),
        stalled_(std::move(stalled)) {}
  void Arm();
  void Tick();

  const absl::Duration interval_;
  const Tell tell_;
  const absl::Duration stall_timeout_;
  const Stalled stalled_;
  TransferStats stats_;
  OpenProgress opening_;
  // Used by the ticks only, which never overlap.
  uint64_t last_read_ = 0;
  absl::Duration last_change_ = SteadyNow();
  std::atomic<uint64_t> total_bytes_{0};
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // SERVER_READING_PROGRESS_TICKER_H_
