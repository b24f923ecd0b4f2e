// SPDX-License-Identifier: Apache-2.0

#include "server/process/steady_alarm.h"

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/denied_calls.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::WithoutNewThreads;

TEST(SteadyAlarm, RingsAfterTheTime) {
  absl::Notification rung;
  SteadyAlarm alarm;
  ASSERT_OK(alarm.Start(absl::Milliseconds(1), [&] { rung.Notify(); }));
  rung.WaitForNotification();
}

TEST(SteadyAlarm, RingsAtOnceWithoutTime) {
  absl::Notification rung;
  SteadyAlarm alarm;
  ASSERT_OK(alarm.Start(-absl::Seconds(1), [&] { rung.Notify(); }));
  rung.WaitForNotification();
}

TEST(SteadyAlarm, DoesNotRingAfterDestruction) {
  bool rung = false;
  for (const absl::Duration after :
       {absl::InfiniteDuration(), absl::Hours(24)}) {
    SteadyAlarm alarm;
    ASSERT_OK(alarm.Start(after, [&] { rung = true; }));
  }
  EXPECT_FALSE(rung);
}

TEST(SteadyAlarm, FailsWithoutAThread) {
  WithoutNewThreads([] {
    SteadyAlarm alarm;
    EXPECT_THAT(alarm.Start(absl::ZeroDuration(), [] {}),
                StatusIs(absl::StatusCode::kResourceExhausted));
  });
}

}  // namespace
}  // namespace dcp::server
