// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/torch_status.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(TorchStatus, ReturnsTheCallsResult) {
  EXPECT_OK(CatchTorch([] {}));
  EXPECT_THAT(CatchTorch([] { return 7; }), IsOkAndHolds(7));
  EXPECT_THAT(CatchTorch([] { return absl::NotFoundError("x"); }),
              StatusIs(absl::StatusCode::kNotFound, "x"));
  EXPECT_THAT(CatchTorch([]() -> absl::StatusOr<int> { return 3; }),
              IsOkAndHolds(3));
  EXPECT_THAT(CatchTorch([]() -> absl::StatusOr<int> {
                return absl::DataLossError("y");
              }),
              StatusIs(absl::StatusCode::kDataLoss, "y"));
}

TEST(TorchStatus, ReturnsMoveOnlyResults) {
  struct Odd {
    explicit Odd(int v) : value(v) {}
    Odd(Odd&&) = default;
    int value;
  };
  const absl::StatusOr<Odd> odd = CatchTorch([] { return Odd(5); });
  ASSERT_OK(odd.status());
  EXPECT_EQ(odd->value, 5);
}

TEST(TorchStatus, MapsExceptionTypesToCodes) {
  const std::vector<std::pair<absl::Status, absl::StatusCode>> cases = {
      {CatchTorch([] { TORCH_CHECK_VALUE(false, "what"); }),
       absl::StatusCode::kInvalidArgument},
      {CatchTorch([] { TORCH_CHECK_TYPE(false, "what"); }),
       absl::StatusCode::kInvalidArgument},
      {CatchTorch([] { TORCH_CHECK_INDEX(false, "what"); }),
       absl::StatusCode::kInvalidArgument},
      {CatchTorch([] { TORCH_CHECK_NOT_IMPLEMENTED(false, "what"); }),
       absl::StatusCode::kUnimplemented},
      {CatchTorch([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "what"); }),
       absl::StatusCode::kResourceExhausted},
      {CatchTorch([] { TORCH_CHECK_WITH(DistBackendError, false, "what"); }),
       absl::StatusCode::kUnavailable},
      {CatchTorch([] { TORCH_CHECK_WITH(DistNetworkError, false, "what"); }),
       absl::StatusCode::kUnavailable},
      {CatchTorch([] {
         TORCH_CHECK_WITH(DistStoreError, false, "wait timeout: what");
       }),
       absl::StatusCode::kDeadlineExceeded},
      {CatchTorch([] {
         TORCH_CHECK_WITH(DistBackendError, false, "Timed out: what");
       }),
       absl::StatusCode::kDeadlineExceeded},
      {CatchTorch([] { TORCH_CHECK(false, "what"); }),
       absl::StatusCode::kFailedPrecondition},
      {CatchTorch([] { TORCH_INTERNAL_ASSERT(false, "what"); }),
       absl::StatusCode::kInternal},
      {CatchTorch([] { std::vector<int>().at(3) = 1; }),
       absl::StatusCode::kInternal},
  };
  for (const auto& [status, code] : cases) {
    EXPECT_EQ(status.code(), code) << status;
    if (code == absl::StatusCode::kInternal) continue;
    EXPECT_THAT(std::string(status.message()), HasSubstr("what"));
  }
  EXPECT_THAT(CatchTorch([] { return std::vector<char>(size_t{1} << 62); }),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("out of memory")));
}

TEST(TorchStatus, MessagesHaveNoStackTrace) {
  const absl::Status status = CatchTorch([] {
                                return at::zeros({2, 3}).view({4});
                              }).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("invalid for input of size 6"),
                                     Not(HasSubstr("frame #")),
                                     Not(HasSubstr("Exception raised from")))));
}

TEST(TorchStatus, OutOfMemoryIsResourceExhausted) {
  EXPECT_THAT(CatchTorch([] { at::empty({int64_t{1} << 55}); }),
              StatusIs(absl::StatusCode::kResourceExhausted, ::testing::_));
}

TEST(TorchStatus, ErrorsBecomeExceptionsAgain) {
  ThrowIfError(absl::OkStatus());
  for (const absl::StatusCode code :
       {absl::StatusCode::kInvalidArgument, absl::StatusCode::kUnimplemented,
        absl::StatusCode::kUnavailable}) {
    EXPECT_THAT(
        CatchTorch([&] { ThrowIfError(absl::Status(code, "tensor w")); }),
        StatusIs(code, "tensor w"));
  }
  EXPECT_THROW(ThrowIfError(absl::InvalidArgumentError("w")), c10::ValueError);
  EXPECT_THAT(CatchTorch([] { ThrowIfError(absl::DataLossError("w")); }),
              StatusIs(absl::StatusCode::kFailedPrecondition, "DATA_LOSS: w"));
}

}  // namespace
}  // namespace fsdp
