// LogLimiter: lines of log that a stranger can cause at will are written at a
// bounded rate, so that they neither fill a disk nor hide the others, and the
// rest is counted. Thread-safe.
#ifndef SERVER_LOG_LIMITER_H_
#define SERVER_LOG_LIMITER_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "server/token_bucket.h"

namespace dcp::server {

class LogLimiter {
 public:
  static constexpr TokenBucket::Limits kLines = {.burst = 100,
                                                 .per_second = 10};

  // `event` is what the lines are about.
  explicit LogLimiter(std::string event, TokenBucket::Limits limits = kLines)
      : event_(std::move(event)), bucket_(limits) {}
  // Tells what was left out last.
  ~LogLimiter();
  LogLimiter(const LogLimiter&) = delete;
  LogLimiter& operator=(const LogLimiter&) = delete;

  // Whether the next line may be written. Before it goes a line
  // "event=suppressed of=EVENT lines=N" where some were left out.
  bool Allow();

 private:
  void TellSuppressed();

  const std::string event_;
  TokenBucket bucket_;
  std::atomic<uint64_t> num_suppressed_ = 0;
};

}  // namespace dcp::server

#endif  // SERVER_LOG_LIMITER_H_
