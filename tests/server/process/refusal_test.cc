// SPDX-License-Identifier: Apache-2.0

#include "server/process/refusal.h"

#include "absl/status/status.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "proto/rpc_status.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;

TEST(Refusal, NamesTheLimitAndTheRetry) {
  const absl::Status reached = LimitReached(
      {.name = "max-streams", .value = 7, .retry_after_ms = 3}, "full");
  EXPECT_THAT(reached, StatusIs(absl::StatusCode::kResourceExhausted, "full"));
  EXPECT_EQ(ErrorReasonName(reached), "LIMIT_REACHED");
  EXPECT_EQ(GetErrorInfo(reached).metadata().at("limit"), "max-streams");
  EXPECT_EQ(GetErrorInfo(reached).metadata().at("value"), "7");
  EXPECT_EQ(RetryAfterMs(reached), 3);

  const absl::Status large = RequestTooLarge("parts", 9, "many");
  EXPECT_THAT(large, StatusIs(absl::StatusCode::kResourceExhausted, "many"));
  EXPECT_EQ(ErrorReasonName(large), "REQUEST_TOO_LARGE");
  EXPECT_EQ(GetErrorInfo(large).metadata().at("value"), "9");
  EXPECT_EQ(RetryAfterMs(large), -1);

  EXPECT_THAT(ServerDraining(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(ErrorReasonName(ServerDraining()), "SERVER_DRAINING");
  EXPECT_GT(RetryAfterMs(ServerDraining()), 0);
}

}  // namespace
}  // namespace dcp::server
