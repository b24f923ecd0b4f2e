// SPDX-License-Identifier: Apache-2.0
#include "server/process/watchdog.h"

#include <cstdlib>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/server/process/notify_socket.h"

namespace dcp::server {
namespace {

TEST(Watchdog, NotifiesSystemdAfterEachCheck) {
  const NotifySocket systemd;
  setenv("NOTIFY_SOCKET", systemd.name().c_str(), 1);
  setenv("WATCHDOG_USEC", "10000000", 1);
  int num_checks = 0;
  Watchdog watchdog([&] { ++num_checks; });
  unsetenv("WATCHDOG_USEC");
  EXPECT_EQ(watchdog.period(), absl::Seconds(5));
  for (int i = 1; i <= 3; ++i) {
    watchdog.Ping();
    EXPECT_EQ(systemd.Receive(), "WATCHDOG=1");
    EXPECT_EQ(num_checks, i);
  }
  unsetenv("NOTIFY_SOCKET");
}

TEST(Watchdog, IsSilentWhileTheProcessIsStuck) {
  const NotifySocket systemd;
  setenv("NOTIFY_SOCKET", systemd.name().c_str(), 1);
  absl::Notification is_stuck;
  absl::Notification goes_on;
  int num_checks = 0;
  Watchdog watchdog([&] {
    if (++num_checks != 2) return;
    is_stuck.Notify();
    goes_on.WaitForNotification();
  });
  EXPECT_EQ(watchdog.period(), absl::InfiniteDuration());
  watchdog.Ping();
  EXPECT_EQ(systemd.Receive(), "WATCHDOG=1");
  for (int i = 0; i < 5; ++i) watchdog.Ping();  // returns
  is_stuck.WaitForNotification();
  EXPECT_EQ(systemd.ReceiveIfThere(), "");
  goes_on.Notify();
  EXPECT_EQ(systemd.Receive(), "WATCHDOG=1");
  unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace dcp::server
