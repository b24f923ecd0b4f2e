// SPDX-License-Identifier: Apache-2.0
// TokenBucket: limits how often something may happen, or how much of it: an
// amount at once, and so much more each second. Thread-safe; never blocks.
#ifndef SERVER_PROCESS_TOKEN_BUCKET_H_
#define SERVER_PROCESS_TOKEN_BUCKET_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/base/steady_time.h"

namespace dcp::server {

class TokenBucket {
 public:
  struct Limits {
    double burst = 1;  // at once
    double per_second = 1;
  };

  explicit TokenBucket(const Limits& limits)
      : limits_(limits), tokens_(limits.burst) {}
  TokenBucket(const TokenBucket&) = delete;
  TokenBucket& operator=(const TokenBucket&) = delete;

  // Returns whether it may happen once more at `now`, a time of SteadyNow, and
  // if so counts `amount`. That may be more than there is left: then it may not
  // happen again until time has made up for it.
  bool Take(absl::Duration now, double amount = 1);

 private:
  const Limits limits_;
  absl::Mutex mutex_;
  double tokens_ ABSL_GUARDED_BY(mutex_);
  absl::Duration last_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
};

}  // namespace dcp::server

#endif  // SERVER_PROCESS_TOKEN_BUCKET_H_
