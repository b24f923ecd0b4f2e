// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/status.h"

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return value / 2;
}

absl::StatusOr<int> Quarter(int value) {
  DCP_ASSIGN_OR_RETURN(const int half, Half(value));
  DCP_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

absl::Status CheckEven(int value) {
  DCP_RETURN_IF_ERROR(Annotate(Half(value).status(), "value ", value));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<int>> Owned(int value) {
  return std::make_unique<int>(value);
}

absl::StatusOr<int> Unwrapped(int value) {
  DCP_ASSIGN_OR_RETURN(std::unique_ptr<int> owned, Owned(value));
  return *owned;
}

TEST(Status, AssignOrReturnGivesTheValueOrTheError) {
  EXPECT_THAT(Quarter(8), IsOkAndHolds(2));
  EXPECT_THAT(Quarter(6), StatusIs(absl::StatusCode::kInvalidArgument, "odd"));
  EXPECT_THAT(Unwrapped(5), IsOkAndHolds(5));
}

TEST(Status, AnnotateReadsFromTheOutsideInAndKeepsTheCode) {
  EXPECT_OK(CheckEven(2));
  EXPECT_THAT(CheckEven(3),
              StatusIs(absl::StatusCode::kInvalidArgument, "value 3: odd"));
}

}  // namespace
}  // namespace dcp
