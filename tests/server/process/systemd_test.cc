// SPDX-License-Identifier: Apache-2.0

#include "server/process/systemd.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/server/process/notify_socket.h"

namespace dcp::server {
namespace {

TEST(Systemd, IsNotifiedWhenConfigured) {
  const NotifySocket socket;
  setenv("NOTIFY_SOCKET", socket.name().c_str(), 1);
  NotifySystemd("READY=1");
  unsetenv("NOTIFY_SOCKET");
  EXPECT_EQ(socket.Receive(), "READY=1");
}

TEST(Systemd, IsNotNotifiedWithoutASocket) {
  unsetenv("NOTIFY_SOCKET");
  NotifySystemd("READY=1");
  setenv("NOTIFY_SOCKET", "/none/socket", 1);
  NotifySystemd("READY=1");
  setenv("NOTIFY_SOCKET", std::string(500, 'x').c_str(), 1);
  NotifySystemd("READY=1");
  unsetenv("NOTIFY_SOCKET");
}

TEST(Systemd, ReadsTheWatchdogTimeout) {
  EXPECT_EQ(WatchdogTimeout(), absl::InfiniteDuration());
  setenv("WATCHDOG_USEC", "30000000", 1);
  EXPECT_EQ(WatchdogTimeout(), absl::Seconds(30));
  setenv("WATCHDOG_PID", absl::StrCat(getpid()).c_str(), 1);
  EXPECT_EQ(WatchdogTimeout(), absl::Seconds(30));
  setenv("WATCHDOG_PID", absl::StrCat(getppid()).c_str(), 1);
  EXPECT_EQ(WatchdogTimeout(), absl::InfiniteDuration());
  unsetenv("WATCHDOG_PID");
  for (const char* wrong : {"", "0", "-1", "x", "99999999999999999999"}) {
    setenv("WATCHDOG_USEC", wrong, 1);
    EXPECT_EQ(WatchdogTimeout(), absl::InfiniteDuration()) << wrong;
  }
  unsetenv("WATCHDOG_USEC");
}

}  // namespace
}  // namespace dcp::server
