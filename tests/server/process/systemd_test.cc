// SPDX-License-Identifier: Apache-2.0

#include "server/process/systemd.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace dcp::server {
namespace {

TEST(Systemd, IsToldWhereItAsks) {
  const std::string name = absl::StrCat("@systemd_test_", getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, name.size());
  address.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                        name.size())),
            0);
  setenv("NOTIFY_SOCKET", name.c_str(), 1);
  NotifySystemd("READY=1");
  unsetenv("NOTIFY_SOCKET");
  char bytes[64];
  const ssize_t length = recv(fd, bytes, sizeof(bytes), 0);
  close(fd);
  ASSERT_GT(length, 0);
  EXPECT_EQ(std::string(bytes, static_cast<size_t>(length)), "READY=1");
}

TEST(Systemd, IsNotToldWhereItDoesNotAsk) {
  unsetenv("NOTIFY_SOCKET");
  NotifySystemd("READY=1");
  setenv("NOTIFY_SOCKET", "/none/socket", 1);
  NotifySystemd("READY=1");
  setenv("NOTIFY_SOCKET", std::string(500, 'x').c_str(), 1);
  NotifySystemd("READY=1");
  unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace dcp::server
