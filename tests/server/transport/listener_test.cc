// SPDX-License-Identifier: Apache-2.0

#include "server/transport/listener.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using ::dcp::testing::kUnavailable;

// Bazel's folders have longer names than a unix socket may have.
class SocketDir {
 public:
  SocketDir() {
    char dir[] = "/tmp/dcp_listener_test_XXXXXX";
    EXPECT_NE(mkdtemp(dir), nullptr);
    path_ = dir;
  }
  ~SocketDir() { std::filesystem::remove_all(path_); }

  std::string socket() const { return absl::StrCat(path_, "/socket"); }

 private:
  std::string path_;
};

TEST(Listener, TakesAnyFreePort) {
  ASSERT_OK_AND_ASSIGN(const Listener one, Listener::Open("127.0.0.1:0"));
  ASSERT_OK_AND_ASSIGN(const Listener other, Listener::Open("127.0.0.1:0"));
  EXPECT_NE(one.address(), other.address());
  EXPECT_THAT(one.sockets(), SizeIs(1));
}

TEST(Listener, RefusesASecondListenerOnAPort) {
  ASSERT_OK_AND_ASSIGN(const Listener one, Listener::Open("127.0.0.1:0"));
  EXPECT_THAT(Listener::Open(one.address()),
              StatusIs(kUnavailable, HasSubstr("it is in use")));
}

TEST(Listener, AllAddressesHaveTheSamePort) {
  ASSERT_OK_AND_ASSIGN(const Listener listener, Listener::Open("localhost:0"));
  EXPECT_THAT(Listener::Open(absl::StrCat(
                  "127.0.0.1",
                  listener.address().substr(listener.address().rfind(':')))),
              StatusIs(kUnavailable));
}

TEST(Listener, RefusesAnAddressOfAnotherMachine) {
  EXPECT_THAT(Listener::Open("203.0.113.1:7420"),
              StatusIs(kUnavailable, HasSubstr("203.0.113.1:7420")));
}

TEST(Listener, DoesNotTakeOverALiveUnixSocket) {
  const SocketDir dir;
  const std::string address = absl::StrCat("unix:", dir.socket());
  absl::StatusOr<Listener> opened = Listener::Open(address);
  ASSERT_OK(opened);
  std::optional<Listener> first(*std::move(opened));
  EXPECT_THAT(Listener::Open(address),
              StatusIs(kUnavailable, HasSubstr("it is in use")));
  EXPECT_TRUE(std::filesystem::exists(dir.socket()));
  first.reset();
  EXPECT_FALSE(std::filesystem::exists(dir.socket()));
}

TEST(Listener, ReplacesTheSocketOfAKilledServer) {
  const SocketDir dir;
  const std::string address = absl::StrCat("unix:", dir.socket());
  const std::string kept = absl::StrCat(dir.socket(), ".kept");
  {
    ASSERT_OK_AND_ASSIGN(const Listener first, Listener::Open(address));
    std::filesystem::rename(dir.socket(), kept);
  }
  std::filesystem::rename(kept, dir.socket());
  EXPECT_OK(Listener::Open(address));
}

TEST(Listener, NeverReplacesAFile) {
  const SocketDir dir;
  std::ofstream(dir.socket()) << "precious";
  EXPECT_THAT(Listener::Open(absl::StrCat("unix:", dir.socket())),
              StatusIs(kUnavailable, HasSubstr("not a socket")));
  EXPECT_EQ(std::filesystem::file_size(dir.socket()), 8);
}

}  // namespace
}  // namespace dcp::server
