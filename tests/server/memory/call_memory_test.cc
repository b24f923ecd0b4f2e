// SPDX-License-Identifier: Apache-2.0

#include "server/memory/call_memory.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rpc_status.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

class CallMemoryTest : public ::testing::Test {
 protected:
  using Got = std::optional<absl::StatusOr<CallMemory>>;

  std::shared_ptr<CallMemoryRequest> Ask(
      const std::shared_ptr<ClientAccount>& account, uint64_t bytes, Got& got,
      absl::Duration wait = absl::Hours(1)) {
    return CallMemoryRequest::Ask(
        account, budget_, bytes, wait,
        [&](absl::StatusOr<CallMemory> memory) { got = std::move(memory); });
  }

  MemoryBudget budget_{150};
  const ClientLimits limits_{
      .num_streams = 1, .memory_bytes = 100, .requests_per_second = 1};
  const std::shared_ptr<ClientAccount> one_ =
      std::make_shared<ClientAccount>("one", limits_);
  const std::shared_ptr<ClientAccount> two_ =
      std::make_shared<ClientAccount>("two", limits_);
};

TEST_F(CallMemoryTest, LeavesMemoryToOtherClients) {
  Got first;
  Got second;
  Got other;
  Ask(one_, 80, first);
  ASSERT_TRUE(first.has_value());
  EXPECT_OK(*first);
  // The client waits for memory from the client's budget, and the server's is
  // left to others.
  const auto waiting = Ask(one_, 40, second);
  EXPECT_FALSE(second.has_value());
  EXPECT_EQ(budget_.used_bytes(), 80u);
  Ask(two_, 70, other);
  ASSERT_TRUE(other.has_value());
  EXPECT_OK(*other);
  other.reset();
  first.reset();
  ASSERT_TRUE(second.has_value());
  EXPECT_OK(*second);
  EXPECT_EQ(budget_.used_bytes(), 40u);
  EXPECT_EQ(one_->memory().used_bytes(), 40u);
}

TEST_F(CallMemoryTest, NamesTheClientsOwnLimit) {
  Got first;
  Ask(one_, 80, first);
  absl::Notification done;
  absl::Status refused;
  const auto request =
      CallMemoryRequest::Ask(one_, budget_, 40, absl::Milliseconds(1),
                             [&](absl::StatusOr<CallMemory> memory) {
                               refused = memory.status();
                               done.Notify();
                             });
  done.WaitForNotification();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("the calls of one have 80 bytes")));
  EXPECT_THAT(refused.message(), HasSubstr("client-memory"));
  EXPECT_GT(RetryAfterMs(refused), 0);
  Got never;
  Ask(one_, 101, never);
  ASSERT_TRUE(never.has_value());
  EXPECT_THAT(never->status(), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(CallMemoryTest, CancelledRequestsHoldNothing) {
  Got first;
  Got second;
  Got third;
  Ask(one_, 100, first);
  const auto for_client = Ask(one_, 50, second);
  const auto for_server = Ask(two_, 60, third);
  for_client->Cancel();
  for_server->Cancel();
  EXPECT_EQ(two_->memory().used_bytes(), 0u);
  first.reset();
  EXPECT_FALSE(second.has_value());
  EXPECT_FALSE(third.has_value());
  EXPECT_EQ(budget_.used_bytes(), 0u);
  EXPECT_EQ(one_->memory().used_bytes(), 0u);
}

}  // namespace
}  // namespace dcp::server
