// SPDX-License-Identifier: Apache-2.0

#include "server/process/token_bucket.h"

#include <algorithm>

namespace dcp::server {

bool TokenBucket::Take(absl::Duration now, double amount) {
  absl::MutexLock lock(&mutex_);
  if (now > last_) {
    const double seconds = absl::ToDoubleSeconds(now - last_);
    tokens_ = std::min(limits_.burst, tokens_ + limits_.per_second * seconds);
    last_ = now;
  }
  if (tokens_ < 1) return false;
  tokens_ -= amount;
  return true;
}

}  // namespace dcp::server
