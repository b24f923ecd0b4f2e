// SPDX-License-Identifier: Apache-2.0

#include "server/transport/guarded_connections.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/steady_time.h"
#include "gtest/gtest.h"
#include "server/transport/call_load.h"
#include "tests/server/transport/raw_connection.h"

namespace dcp::server {
namespace {

// Two ends of a connection.
class GuardedConnectionsTest : public ::testing::Test {
 protected:
  GuardedConnectionsTest() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds_), 0);
  }
  ~GuardedConnectionsTest() override {
    close(fds_[0]);
    close(fds_[1]);
  }

  void Guard() {
    GuardConnection(fds_[0], Encryption::kNone, [] {});
  }

  // Sends the bytes and reads them as gRPC does, in two parts. Returns the
  // number that arrived, or -1.
  ssize_t Transfer(absl::string_view bytes) {
    EXPECT_EQ(send(fds_[1], bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
    char first[10];
    char second[1 << 16];
    iovec parts[] = {{first, sizeof(first)}, {second, sizeof(second)}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    return recvmsg(fds_[0], &message, 0);
  }

  // Headers that never end.
  std::string Endless() {
    std::string frames = Preface() + Frame(kHeadersFrame, 0, 1, "x");
    for (int i = 0; i < 100; ++i) {
      frames += Frame(kContinuationFrame, 0, 1, "x");
    }
    return frames;
  }

  int fds_[2];
};

// Makes the two ends of a TCP connection, and the name that gRPC gives to the
// client.
void ConnectOverTcp(int (&fds)[2], std::string& peer) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  fds[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, generic, size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, generic, &size), 0);
  ASSERT_EQ(connect(fds[1], generic, size), 0);
  fds[0] = accept4(listener, generic, &size, SOCK_CLOEXEC);
  ASSERT_GE(fds[0], 0);
  peer = absl::StrCat("ipv4:127.0.0.1:", ntohs(address.sin_port));
  close(listener);
}

TEST_F(GuardedConnectionsTest, PassesValidConnections) {
  Guard();
  const std::string frames =
      Preface() + Frame(kHeadersFrame, kEndHeaders, 1, "x");
  EXPECT_EQ(Transfer(frames), static_cast<ssize_t>(frames.size()));
}

TEST_F(GuardedConnectionsTest, InvalidConnectionsLookBroken) {
  Guard();
  const uint64_t num_cut = NumConnectionsCut();
  EXPECT_EQ(Transfer(Endless()), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(NumConnectionsCut(), num_cut + 1);
}

TEST_F(GuardedConnectionsTest, IgnoresUnregisteredDescriptors) {
  EXPECT_EQ(Transfer(Endless()), static_cast<ssize_t>(Endless().size()));
}

TEST_F(GuardedConnectionsTest, DoesNotGuardALaterSocketWithTheSameDescriptor) {
  Guard();
  close(fds_[0]);
  close(fds_[1]);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds_), 0);
  EXPECT_EQ(Transfer(Endless()), static_cast<ssize_t>(Endless().size()));
}

TEST_F(GuardedConnectionsTest,
       CallsAreOpenUntilTheAnswerIsSentOrTheSocketCloses) {
  Guard();
  const int64_t num_open = ProcessCallLoad().num_open;
  const auto call = [](uint32_t stream) {
    return Frame(kHeadersFrame, kEndHeaders | kEndStream, stream, "x");
  };
  const std::string frames = Preface() + call(1) + call(3);
  EXPECT_EQ(Transfer(frames), static_cast<ssize_t>(frames.size()));
  EXPECT_EQ(ProcessCallLoad().num_open, num_open + 2);
  std::string answer = call(1);
  iovec part = {answer.data(), answer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  EXPECT_EQ(sendmsg(fds_[0], &message, 0), static_cast<ssize_t>(answer.size()));
  EXPECT_EQ(ProcessCallLoad().num_open, num_open + 1);
  close(fds_[0]);
  EXPECT_EQ(ProcessCallLoad().num_open, num_open);
}

TEST_F(GuardedConnectionsTest, LateRequestEndsTheConnection) {
  Guard();
  const std::string frames =
      Preface() + Frame(kHeadersFrame, kEndHeaders, 1, "x");
  EXPECT_EQ(Transfer(frames), static_cast<ssize_t>(frames.size()));
  CutLateRequests(SteadyNow());
  char byte;
  EXPECT_EQ(recv(fds_[1], &byte, 1, MSG_DONTWAIT), -1) << "it is open";
  CutLateRequests(SteadyNow() + kMaxRequestTime + absl::Seconds(1));
  EXPECT_EQ(recv(fds_[1], &byte, 1, 0), 0) << "it has ended";
}

// A connection next to another with larger requests.
TEST_F(GuardedConnectionsTest, EndsTheLargestConnectionUnderLoad) {
  int others[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, others), 0);
  GuardConnection(others[0], Encryption::kNone, [] {});
  std::swap(fds_[0], others[0]);
  std::swap(fds_[1], others[1]);
  const auto call = [](uint32_t stream) {
    return Frame(kHeadersFrame, kEndHeaders, stream, "x");
  };
  const std::string two = Preface() + call(1) + call(3);
  EXPECT_EQ(Transfer(two), static_cast<ssize_t>(two.size()));
  std::swap(fds_[0], others[0]);
  std::swap(fds_[1], others[1]);
  Guard();
  CallLoad& load = ProcessCallLoad();
  load.max_request_bytes = load.request_bytes + kCallBytes / 2;
  const std::string one = Preface() + call(1);
  EXPECT_EQ(Transfer(one), static_cast<ssize_t>(one.size()));
  load.max_request_bytes = kMaxRequestMemory;
  char byte;
  EXPECT_EQ(recv(others[1], &byte, 1, 0), 0) << "the larger one has ended";
  EXPECT_EQ(recv(fds_[1], &byte, 1, MSG_DONTWAIT), -1) << "this one is open";
  close(others[0]);
  close(others[1]);
}

// A client with a valid token has the larger requests.
TEST_F(GuardedConnectionsTest, EndsStrangersBeforeClientsUnderLoad) {
  int clients[2];
  std::string peer;
  ConnectOverTcp(clients, peer);
  GuardConnection(clients[0], Encryption::kNone, [] {});
  const std::shared_ptr<void> counted = CountClientCall(peer);
  ASSERT_EQ(counted.use_count(), 1) << "no connection of " << peer;
  std::swap(fds_, clients);
  const auto call = [](uint32_t stream) {
    return Frame(kHeadersFrame, kEndHeaders, stream, "x");
  };
  const std::string two = Preface() + call(1) + call(3);
  EXPECT_EQ(Transfer(two), static_cast<ssize_t>(two.size()));
  std::swap(fds_, clients);
  Guard();
  CallLoad& load = ProcessCallLoad();
  load.max_request_bytes = load.request_bytes + kCallBytes / 2;
  const std::string one = Preface() + call(1);
  EXPECT_EQ(Transfer(one), -1);
  load.max_request_bytes = kMaxRequestMemory;
  char byte;
  EXPECT_EQ(recv(fds_[1], &byte, 1, 0), 0) << "the stranger's has ended";
  EXPECT_EQ(recv(clients[1], &byte, 1, MSG_DONTWAIT), -1)
      << "the client's is open";
  close(clients[0]);
  close(clients[1]);
}

TEST_F(GuardedConnectionsTest, CookiesAreUnique) {
  EXPECT_NE(SocketCookie(fds_[0]), 0u);
  EXPECT_EQ(SocketCookie(fds_[0]), SocketCookie(fds_[0]));
  EXPECT_NE(SocketCookie(fds_[0]), SocketCookie(fds_[1]));
  EXPECT_EQ(SocketCookie(-1), 0u);
}

}  // namespace
}  // namespace dcp::server
