#include "server/process/steady_alarm.h"

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace dcp::server {
namespace {

TEST(SteadyAlarm, RingsWhenItsTimeHasCome) {
  absl::Notification rung;
  const SteadyAlarm alarm(absl::Milliseconds(1), [&] { rung.Notify(); });
  rung.WaitForNotification();
}

TEST(SteadyAlarm, RingsAtOnceWithoutTime) {
  absl::Notification rung;
  const SteadyAlarm alarm(-absl::Seconds(1), [&] { rung.Notify(); });
  rung.WaitForNotification();
}

TEST(SteadyAlarm, IsSilentWhenItIsDestroyedBefore) {
  bool rung = false;
  {
    const SteadyAlarm alarm(absl::InfiniteDuration(), [&] { rung = true; });
  }
  {
    const SteadyAlarm alarm(absl::Hours(24), [&] { rung = true; });
  }
  EXPECT_FALSE(rung);
}

}  // namespace
}  // namespace dcp::server
