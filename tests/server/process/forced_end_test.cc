// SPDX-License-Identifier: Apache-2.0

#include "server/process/forced_end.h"

#include <iostream>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "dcp/base/log.h"
#include "gtest/gtest.h"

namespace dcp::server {
namespace {

// Does the same as main while a thread never returns.
void WaitForEver() {
  SetLogSink([](LogSeverity, absl::string_view line) { std::cerr << line; });
  ForcedEnd forced_end(3, [] { std::cerr << " flushed" << std::endl; });
  forced_end.Within(absl::Hours(1));
  forced_end.Within(absl::Milliseconds(1));
  absl::Notification never;
  never.WaitForNotification();
}

TEST(ForcedEndDeathTest, EndsAHangingProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(WaitForEver(), ::testing::ExitedWithCode(3),
              "event=stop_forced .* flushed");
}

TEST(ForcedEnd, DoesNothingIfTheProcessEndsInTime) {
  ForcedEnd forced_end(3, [] {});
  forced_end.Within(absl::Hours(1));
}

}  // namespace
}  // namespace dcp::server
