// SPDX-License-Identifier: Apache-2.0

#include "server/memory/client_account.h"

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rpc_status.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
constexpr ClientLimits kAccountLimits{
    .num_streams = 2, .memory_bytes = 100, .requests_per_second = 5};

TEST(ClientAccount, StreamsAreCounted) {
  ClientAccount account("trainer", kAccountLimits);
  ASSERT_OK(account.BeginStream());
  ASSERT_OK(account.BeginStream());
  const absl::Status refused = account.BeginStream();
  EXPECT_THAT(refused,
              StatusIs(kExhausted, HasSubstr("trainer has 2 streams")));
  EXPECT_THAT(refused.message(), HasSubstr("max-streams-per-client"));
  EXPECT_GT(RetryAfterMs(refused), 0);
  account.EndStream();
  EXPECT_OK(account.BeginStream());
}

TEST(ClientAccount, RequestsHaveARate) {
  ClientAccount account("trainer", kAccountLimits);
  const absl::Duration now = absl::Hours(1);
  for (int i = 0; i < 5 * kBurstSeconds; ++i) {
    ASSERT_OK(account.CountRequest(now));
  }
  const absl::Status refused = account.CountRequest(now);
  EXPECT_THAT(refused, StatusIs(kExhausted, HasSubstr("more than 5 requests")));
  EXPECT_GT(RetryAfterMs(refused), 0);
  EXPECT_OK(account.CountRequest(now + absl::Milliseconds(200)));
  EXPECT_THAT(account.CountRequest(now + absl::Milliseconds(200)),
              StatusIs(kExhausted));
}

TEST(ClientAccount, LargeRequestsHaveARateOfTheirOwn) {
  ClientAccount account("trainer", kAccountLimits);
  const absl::Duration now = absl::Hours(1);
  ASSERT_OK(account.CheckParsing(now));
  // Takes the burst and five seconds more.
  account.CountParsing(now, 5 * (kBurstSeconds + 5) * kParsedBytesPerRequest);
  const absl::Status refused = account.CheckParsing(now + absl::Seconds(5));
  EXPECT_THAT(refused,
              StatusIs(kExhausted, HasSubstr("327680 bytes of memory")));
  EXPECT_GT(RetryAfterMs(refused), 0);
  EXPECT_OK(account.CountRequest(now)) << "small ones are not affected";
  EXPECT_OK(account.CheckParsing(now + absl::Seconds(6)));
}

}  // namespace
}  // namespace dcp::server
