// SPDX-License-Identifier: Apache-2.0

#include "server/process/log_limiter.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "dcp/base/log.h"
#include "gtest/gtest.h"

namespace dcp::server {
namespace {

TEST(LogLimiter, AllowsABurstAndCountsTheRest) {
  std::string lines;
  SetLogSink([&](LogSeverity, absl::string_view line) {
    absl::StrAppend(&lines, line, "\n");
  });
  {
    LogLimiter limiter("call", {.burst = 2, .per_second = 0});
    EXPECT_TRUE(limiter.Allow());
    EXPECT_TRUE(limiter.Allow());
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(limiter.Allow());
    EXPECT_EQ(lines, "");
  }
  EXPECT_EQ(lines, "event=suppressed of=call lines=3\n");
  SetLogSink([](LogSeverity, absl::string_view) {});
}

}  // namespace
}  // namespace dcp::server
