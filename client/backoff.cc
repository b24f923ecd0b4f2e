// SPDX-License-Identifier: Apache-2.0

#include "client/backoff.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "dcp/base/unique_bits.h"
#include "proto/error_detail.h"
#include "proto/rpc_status.h"

namespace dcp::client {

bool IsRetryable(const absl::Status& status) {
  // A server never answers Internal: gRPC reports it when a stream was reset.
  return absl::IsUnavailable(status) || absl::IsInternal(status) ||
         (absl::IsResourceExhausted(status) && RetryAfterMs(status) >= 0);
}

bool IsPageTokenRefused(const absl::Status& status) {
  return ErrorReasonName(status) ==
         tessera::v1::ErrorReason_Name(ErrorReason::INVALID_PAGE_TOKEN);
}

Backoff::Backoff(const RetryOptions& options, bool answered, absl::Duration end,
                 std::stop_token stop)
    : options_(options),
      end_(end),
      stop_(std::move(stop)),
      answered_(answered),
      random_(UniqueBits()) {}

absl::Duration Backoff::NextWait(const absl::Status& failure) {
  absl::Duration wait = options_.first_wait;
  for (int64_t i = 0; i < num_retries_ && wait < options_.max_wait; ++i) {
    wait *= 2;
  }
  wait = std::min(wait, options_.max_wait);
  const int64_t retry_after_ms = RetryAfterMs(failure);
  if (retry_after_ms >= 0) {
    wait = std::max(wait, absl::Milliseconds(retry_after_ms));
  }
  return wait * std::uniform_real_distribution<double>(1.0, 1.5)(random_);
}

absl::Status Backoff::Wait(const absl::Status& failure) {
  if (stop_.stop_requested()) return absl::CancelledError("stopped");
  if (!IsRetryable(failure)) return failure;
  const int64_t max_retries =
      answered_ ? options_.max_retries
                : std::min(options_.max_retries, options_.max_first_retries);
  if (num_retries_ >= max_retries) {
    if (num_retries_ == 0) return failure;
    return Annotate(failure, "after ", num_retries_, " retries");
  }
  const absl::Duration until = SteadyNow() + NextWait(failure);
  if (until > end_) return failure;
  ++num_retries_;
  absl::Mutex mutex;
  SteadyCondVar stopped;
  {
    // Registered before locking, because it runs here if a stop was already
    // requested.
    const std::stop_callback wake(stop_, [&] {
      absl::MutexLock lock(&mutex);
      stopped.SignalAll();
    });
    absl::MutexLock lock(&mutex);
    while (!stop_.stop_requested() && SteadyNow() < until) {
      stopped.WaitUntil(&mutex, until);
    }
  }
  return stop_.stop_requested() ? absl::CancelledError("stopped")
                                : absl::OkStatus();
}

}  // namespace dcp::client
