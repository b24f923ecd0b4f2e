// SPDX-License-Identifier: Apache-2.0

#include "server/reading/stall_timer.h"

#include <atomic>
#include <memory>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace dcp::server {
namespace {

TEST(StallTimer, DetectsAStalledWrite) {
  const auto timer = StallTimer::Create(absl::Milliseconds(5));
  absl::Notification stalled;
  timer->BeginWait();
  timer->Start([&] { stalled.Notify(); });
  stalled.WaitForNotification();
  timer->Stop();
}

// A later stall is found even after many waits that ended.
TEST(StallTimer, DetectsALaterStall) {
  const auto timer = StallTimer::Create(absl::Milliseconds(5));
  absl::Notification stalled;
  timer->Start([&] { stalled.Notify(); });
  for (int i = 0; i < 1000; ++i) {
    timer->BeginWait();
    timer->EndWait();
  }
  timer->BeginWait();
  stalled.WaitForNotification();
}

TEST(StallTimer, CallsNothingAfterStop) {
  for (int i = 0; i < 50; ++i) {
    // Owners: this round, and the function.
    const auto over = std::make_shared<std::atomic<bool>>(false);
    const auto timer = StallTimer::Create(absl::Hours(1));
    timer->BeginWait();
    timer->Start([over] { EXPECT_FALSE(*over); });
    timer->Stop();
    *over = true;
    // The function has been destroyed, with everything that it owns.
    EXPECT_EQ(over.use_count(), 1);
  }
}

}  // namespace
}  // namespace dcp::server
