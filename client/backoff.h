// Backoff: whether and when a call that failed is made again. Waits grow from
// `first_wait` by halves of random length, so that ranks that failed together
// do not come back together, and obey a server that says when. One thread; a
// stop token ends a wait from any.
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
  // In a row, without anything that arrived in between; 0: never again. By
  // default about a minute, in which a daemon restarts.
  int64_t max_retries = 10;
  // The same while the daemon has never answered: some seconds, after which an
  // address is more likely wrong.
  int64_t max_first_retries = 5;
};

// What bounds a call. A stop ends it with Cancelled.
struct CallOptions {
  // Of the whole call with its retries.
  absl::Duration timeout = absl::InfiniteDuration();
  std::stop_token stop = {};
};

// Whether the same call may succeed if it is made again: Unavailable, a
// connection that broke, or what the server says to try later.
bool IsRetryable(const absl::Status& status);

// Whether a list that had begun is to be asked for again from its first page:
// the server was restarted, or what it lists was replaced.
bool IsPageTokenRefused(const absl::Status& status);
// How often that is done before the error counts.
inline constexpr int kMaxListRestarts = 5;

class Backoff {
 public:
  // `answered`: whether the daemon has ever.
  Backoff(const RetryOptions& options, bool answered, absl::Time deadline,
          std::stop_token stop);

  // After a failure: waits, and returns OK when it is time to try again; the
  // failure when it is not worth it, was one too many, or when the deadline
  // would come before; Cancelled after a stop.
  absl::Status Wait(const absl::Status& failure);

  // Something arrived: the next failure is the first again.
  void Reset() {
    num_retries_ = 0;
    answered_ = true;
  }

 private:
  absl::Duration NextWait(const absl::Status& failure);

  const RetryOptions options_;
  const absl::Time deadline_;
  const std::stop_token stop_;
  bool answered_;
  int64_t num_retries_ = 0;
  std::mt19937_64 random_{std::random_device{}()};
};

}  // namespace dcp::client

#endif  // CLIENT_BACKOFF_H_
