#include "server/transport/guarded_reads.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "tests/server/transport/raw_connection.h"

namespace dcp::server {
namespace {

// Two ends of a connection.
class GuardedReadsTest : public ::testing::Test {
 protected:
  GuardedReadsTest() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds_), 0);
  }
  ~GuardedReadsTest() override {
    close(fds_[0]);
    close(fds_[1]);
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

TEST_F(GuardedReadsTest, ConnectionsInGoodOrderAreRead) {
  GuardReads(fds_[0]);
  const std::string frames =
      Preface() + Frame(kHeadersFrame, kEndHeaders, 1, "x");
  EXPECT_EQ(Transfer(frames), static_cast<ssize_t>(frames.size()));
}

TEST_F(GuardedReadsTest, OthersLookBroken) {
  GuardReads(fds_[0]);
  const uint64_t num_cut = NumConnectionsCut();
  EXPECT_EQ(Transfer(Endless()), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(NumConnectionsCut(), num_cut + 1);
}

TEST_F(GuardedReadsTest, WhatIsNotRegisteredIsNotLookedAt) {
  EXPECT_EQ(Transfer(Endless()), static_cast<ssize_t>(Endless().size()));
}

TEST_F(GuardedReadsTest, ALaterSocketOfTheSameDescriptorIsNotGuarded) {
  GuardReads(fds_[0]);
  int others[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, others), 0);
  ASSERT_EQ(dup2(others[0], fds_[0]), fds_[0]);
  ASSERT_EQ(dup2(others[1], fds_[1]), fds_[1]);
  close(others[0]);
  close(others[1]);
  EXPECT_EQ(Transfer(Endless()), static_cast<ssize_t>(Endless().size()));
}

TEST_F(GuardedReadsTest, ACookieIsOfOneSocket) {
  EXPECT_NE(SocketCookie(fds_[0]), 0u);
  EXPECT_EQ(SocketCookie(fds_[0]), SocketCookie(fds_[0]));
  EXPECT_NE(SocketCookie(fds_[0]), SocketCookie(fds_[1]));
  EXPECT_EQ(SocketCookie(-1), 0u);
}

}  // namespace
}  // namespace dcp::server
