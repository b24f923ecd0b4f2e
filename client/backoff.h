// SPDX-License-Identifier: Apache-2.0
// Backoff: whether a failed call is made again, and when. Waits double from
// `first_wait`, with random jitter so that ranks that failed together do not
// return together, and are never shorter than a server asks for. Used by one
// thread; a stop token ends a wait from any thread.
#ifndef CLIENT_BACKOFF_H_
#define CLIENT_BACKOFF_H_

#include <cstdint>
#include <random>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace dcp::client {

struct RetryOptions {
  absl::Duration first_wait = absl::Milliseconds(100);
  absl::Duration max_wait = absl::Seconds(10);
  // Retries in a row with nothing arriving in between; 0: none. The default
  // lasts about a minute, long enough for a daemon to restart.
  int64_t max_retries = 10;
  // The same while the daemon has never answered. The default lasts a few
  // seconds, after which the address is more likely wrong.
  int64_t max_first_retries = 5;
};

// The bounds of a call. A stop ends it with Cancelled.
struct CallOptions {
  // For the whole call including retries.
  absl::Duration timeout = absl::InfiniteDuration();
  std::stop_token stop = {};
};

// Whether the same call may succeed if it is made again: the error is
// Unavailable, the connection broke, or the server says to try later.
bool IsRetryable(const absl::Status& status);

// Whether a list must be requested again from its first page, because the
// server restarted or the listed data was replaced.
bool IsPageTokenRefused(const absl::Status& status);
// How many times a list is restarted before the error is returned.
inline constexpr int kMaxListRestarts = 5;

class Backoff {
 public:
  // `answered`: whether the daemon has ever answered.
  Backoff(const RetryOptions& options, bool answered, absl::Duration end,
          std::stop_token stop);

  // After a failure: waits, and returns OK when it is time to try again.
  // Returns `failure` if it is not retryable, if the retries are used up, or if
  // the end would pass first; Cancelled after a stop.
  absl::Status Wait(const absl::Status& failure);

  // Something arrived: the count of retries starts again at zero.
  void Reset() {
    num_retries_ = 0;
    answered_ = true;
  }

 private:
  absl::Duration NextWait(const absl::Status& failure);

  const RetryOptions options_;
  const absl::Duration end_;
  const std::stop_token stop_;
  bool answered_;
  int64_t num_retries_ = 0;
  std::mt19937_64 random_;
};

}  // namespace dcp::client

#endif  // CLIENT_BACKOFF_H_
