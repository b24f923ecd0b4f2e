// SPDX-License-Identifier: Apache-2.0

#include "server/process/log_limiter.h"

#include "dcp/base/log.h"
#include "dcp/base/steady_time.h"

namespace dcp::server {

LogLimiter::~LogLimiter() { LogSuppressed(); }

bool LogLimiter::Allow() {
  if (!bucket_.Take(SteadyNow())) {
    ++num_suppressed_;
    return false;
  }
  LogSuppressed();
  return true;
}

void LogLimiter::LogSuppressed() {
  const uint64_t num_lines = num_suppressed_.exchange(0);
  if (num_lines == 0) return;
  DCP_LOG(kWarning) << "event=suppressed of=" << event_
                    << " lines=" << num_lines;
}

}  // namespace dcp::server
