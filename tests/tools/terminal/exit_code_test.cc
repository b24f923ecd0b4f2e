// SPDX-License-Identifier: Apache-2.0

#include "tools/terminal/exit_code.h"

#include "dcp/base/error_misfit.h"
#include "dcp/base/error_side.h"
#include "gtest/gtest.h"

namespace dcp::tools {
namespace {

TEST(ExitCode, FollowsCodeAndSide) {
  using absl::StatusCode;
  const struct {
    StatusCode code;
    ErrorSide side;
    ExitCode want;
  } kCases[] = {
      {StatusCode::kCancelled, ErrorSide::kNone, kExitInterrupted},
      {StatusCode::kCancelled, ErrorSide::kSource, kExitInterrupted},
      {StatusCode::kInvalidArgument, ErrorSide::kNone, kExitUsage},
      {StatusCode::kInvalidArgument, ErrorSide::kSource, kExitSource},
      {StatusCode::kInvalidArgument, ErrorSide::kDestination, kExitDestination},
      {StatusCode::kAlreadyExists, ErrorSide::kDestination, kExitRefused},
      {StatusCode::kFailedPrecondition, ErrorSide::kNone, kExitRefused},
      {StatusCode::kFailedPrecondition, ErrorSide::kSource, kExitRefused},
      {StatusCode::kResourceExhausted, ErrorSide::kNone, kExitRefused},
      {StatusCode::kResourceExhausted, ErrorSide::kDestination, kExitRefused},
      {StatusCode::kResourceExhausted, ErrorSide::kSource, kExitSource},
      {StatusCode::kNotFound, ErrorSide::kNone, kExitSource},
      {StatusCode::kNotFound, ErrorSide::kSource, kExitSource},
      {StatusCode::kNotFound, ErrorSide::kDestination, kExitDestination},
      {StatusCode::kDataLoss, ErrorSide::kNone, kExitSource},
      {StatusCode::kPermissionDenied, ErrorSide::kSource, kExitSource},
      {StatusCode::kPermissionDenied, ErrorSide::kDestination,
       kExitDestination},
      {StatusCode::kUnimplemented, ErrorSide::kNone, kExitSource},
      {StatusCode::kUnavailable, ErrorSide::kDestination, kExitDestination},
  };
  for (const auto& test : kCases) {
    const absl::Status plain(test.code, "x");
    const absl::Status status =
        test.side == ErrorSide::kNone ? plain : WithSide(plain, test.side);
    EXPECT_EQ(ExitCodeFor(status), test.want)
        << status << " of side " << SideName(status);
  }
  EXPECT_EQ(ExitCodeFor(absl::OkStatus()), kExitDone);
}

// A daemon says FailedPrecondition where a mapping here says DataLoss.
TEST(ExitCode, MisfitBelongsToTheSource) {
  EXPECT_EQ(ExitCodeFor(WithMisfit(absl::DataLossError("x"))), kExitSource);
  EXPECT_EQ(ExitCodeFor(WithMisfit(absl::FailedPreconditionError("x"))),
            kExitSource);
}

TEST(ExitCode, NamesSides) {
  EXPECT_EQ(SideName(absl::DataLossError("x")), "");
  EXPECT_EQ(SideName(WithSide(absl::DataLossError("x"), ErrorSide::kSource)),
            "source");
  EXPECT_EQ(
      SideName(WithSide(absl::DataLossError("x"), ErrorSide::kDestination)),
      "destination");
}

}  // namespace
}  // namespace dcp::tools
