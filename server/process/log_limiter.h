// SPDX-License-Identifier: Apache-2.0
// LogLimiter: limits the rate of log lines that a stranger can cause at will,
// so that they neither fill a disk nor hide the others. Lines beyond the limit
// are counted. Thread-safe.
#ifndef SERVER_PROCESS_LOG_LIMITER_H_
#define SERVER_PROCESS_LOG_LIMITER_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "server/process/token_bucket.h"

namespace dcp::server {

class LogLimiter {
 public:
  static constexpr TokenBucket::Limits kLines = {.burst = 100,
                                                 .per_second = 10};

  // `event` is the event of the suppressed lines.
  explicit LogLimiter(std::string event, TokenBucket::Limits limits = kLines)
      : event_(std::move(event)), bucket_(limits) {}
  // Logs how many lines were suppressed last.
  ~LogLimiter();
  LogLimiter(const LogLimiter&) = delete;
  LogLimiter& operator=(const LogLimiter&) = delete;

  // Whether the next line may be written. If lines were suppressed before it,
  // this logs "event=suppressed of=EVENT lines=N" first.
  bool Allow();

 private:
  void LogSuppressed();

  const std::string event_;
  TokenBucket bucket_;
  std::atomic<uint64_t> num_suppressed_ = 0;
};

}  // namespace dcp::server

#endif  // SERVER_PROCESS_LOG_LIMITER_H_
