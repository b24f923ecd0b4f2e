// SPDX-License-Identifier: Apache-2.0
// The resources that a client without a token can make the server hold: each
// test sends bytes that no library would, with and without TLS, and shows that
// the server ends the connection, then holds nothing, and serves others.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "server/transport/call_load.h"
#include "server/transport/guarded_connections.h"
#include "tests/server/server_fixture.h"
#include "tests/server/transport/raw_connection.h"
#include "tests/testing/certificates.h"

namespace dcp::server {
namespace {

using ::dcp::testing::Authority;

constexpr char kInspectMethod[] = "/tessera.v1.CheckpointService/Inspect";

// With and without TLS.
class ServerStrangerTest : public ServerFixture,
                           public ::testing::WithParamInterface<bool> {
 protected:
  ServerStrangerTest() {
    options_.tokens_file = dir_.WriteFile(
        "tokens",
        "a 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\n");
    options_.max_streams = 20;
    if (GetParam()) UseTls(authority_.Sign("server"));
    Start();
    num_cut_ = NumConnectionsCut();
  }
  ~ServerStrangerTest() override {
    ProcessCallLoad().max_request_bytes = kMaxRequestMemory;
  }

  std::unique_ptr<RawConnection> Connect() {
    auto connection = std::make_unique<RawConnection>(address_, GetParam());
    EXPECT_TRUE(connection->Send(Preface()));
    return connection;
  }

  std::string HealthOfServer() {
    return Health(GetParam() ? Tls(authority_.cert()) : Plaintext());
  }

  // Until gRPC has noticed that connections have ended.
  void WaitUntilNothingIsHeld() {
    while (ProcessCallLoad().num_open != 0 ||
           ProcessCallLoad().request_bytes != 0) {
    }
  }

  Authority authority_{dir_, "ca"};
  uint64_t num_cut_ = 0;
};

TEST_P(ServerStrangerTest, LimitsUnstartedCallsPerConnection) {
  const auto connection = Connect();
  // It never acknowledges the server's SETTINGS.
  int num_sent = 0;
  while (num_sent < 10'000 &&
         connection->Send(Frame(kHeadersFrame, kEndHeaders,
                                static_cast<uint32_t>(2 * num_sent + 1),
                                CallHeaders(kInspectMethod)))) {
    ++num_sent;
  }
  EXPECT_LT(num_sent, 10'000);
  EXPECT_TRUE(connection->WaitForEnd());
  EXPECT_EQ(NumConnectionsCut(), num_cut_ + 1);
  WaitUntilNothingIsHeld();
  EXPECT_EQ(HealthOfServer(), kServing);
}

// Two connections send as much as all may; a third, which sends little, stays.
TEST_P(ServerStrangerTest, LimitsUnfinishedRequestsForAllConnections) {
  ProcessCallLoad().max_request_bytes = 1 << 20;
  const auto small = Connect();
  ASSERT_TRUE(small->Send(
      Frame(kHeadersFrame, kEndHeaders, 1, CallHeaders(kInspectMethod))));
  std::vector<std::unique_ptr<RawConnection>> large;
  for (int i = 0; i < 2; ++i) large.push_back(Connect());
  // The beginning of a message of 4 MiB.
  for (uint32_t stream = 1; stream < 40; stream += 2) {
    for (const auto& connection : large) {
      connection->Send(
          absl::StrCat(Frame(kHeadersFrame, kEndHeaders, stream,
                             CallHeaders(kInspectMethod)),
                       Frame(kDataFrame, 0, stream,
                             absl::StrCat(std::string("\0\0\x40\0\0", 5),
                                          std::string(1000, 'x')))));
    }
  }
  while (NumConnectionsCut() < num_cut_ + 1) {
  }
  EXPECT_LE(ProcessCallLoad().request_bytes, 1 << 20);
  EXPECT_EQ(HealthOfServer(), kServing);
  EXPECT_TRUE(small->Send(
      Frame(kDataFrame, kEndStream, 1, std::string("\0\0\0\0\0", 5))));
  EXPECT_TRUE(small->Drain()) << "it has been cut";
}

TEST_P(ServerStrangerTest, PublicCallsCountUntilTheyEnd) {
  const auto connection = Connect();
  for (uint32_t stream = 1; stream < 40; stream += 2) {
    ASSERT_TRUE(connection->Send(absl::StrCat(
        Frame(kHeadersFrame, kEndHeaders, stream, CallHeaders(kHealthWatch)),
        Frame(kDataFrame, kEndStream, stream, std::string("\0\0\0\0\0", 5)))));
  }
  while (ProcessCallLoad().request_bytes < 20 * kCallBytes) {
  }
  ProcessCallLoad().max_request_bytes = kCallBytes;
  EXPECT_TRUE(connection->Send(Frame(kPingFrame, 0, 0, "12345678")));
  EXPECT_TRUE(connection->WaitForEnd());
  ProcessCallLoad().max_request_bytes = kMaxRequestMemory;
  WaitUntilNothingIsHeld();
  EXPECT_EQ(HealthOfServer(), kServing);
}

TEST_P(ServerStrangerTest, RefusedCallsLeaveNothing) {
  const auto connection = Connect();
  // A request that is whole, in a call that is not: it is refused at once.
  for (uint32_t stream = 1; stream < 1000; stream += 2) {
    ASSERT_TRUE(connection->Send(absl::StrCat(
        Frame(kHeadersFrame, kEndHeaders, stream, CallHeaders(kInspectMethod)),
        Frame(kDataFrame, 0, stream, std::string("\0\0\0\0\0", 5)))));
    ASSERT_TRUE(connection->WaitForAnswer(stream)) << stream;
  }
  WaitUntilNothingIsHeld();
  EXPECT_EQ(NumConnectionsCut(), num_cut_);
}

INSTANTIATE_TEST_SUITE_P(Tls, ServerStrangerTest, ::testing::Bool());

}  // namespace
}  // namespace dcp::server
