// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/posix_error.h"

#include <cerrno>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;

TEST(PosixError, NamesTheOperationAndTheReason) {
  EXPECT_THAT(PosixError(ENOENT, "open /a"),
              StatusIs(absl::StatusCode::kNotFound,
                       "open /a: No such file or directory"));
}

TEST(PosixError, NamesTheLimitThatAUserMayRaise) {
  EXPECT_THAT(PosixError(EMFILE, "open /a"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "open /a: Too many open files in this process: raise "
                       "the limit with ulimit -n"));
  EXPECT_THAT(PosixError(EFBIG, "write /a"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       ::testing::HasSubstr("ulimit -f")));
  // How an io_uring request ends if the kernel has no thread for it.
  EXPECT_THAT(PosixError(ECANCELED, "write /a"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       ::testing::HasSubstr("starts no more threads for this "
                                            "process: raise ulimit -u")));
}

TEST(PosixError, ChoosesTheCodeByThePossibleReaction) {
  const auto code = [](int error) { return PosixError(error, "x").code(); };
  EXPECT_EQ(code(EEXIST), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(code(EACCES), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(code(ENOSPC), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code(EINVAL), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(ENOTEMPTY), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(EOPNOTSUPP), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code(EIO), absl::StatusCode::kUnavailable);
}

TEST(PosixError, KeepsTheNumberOfAnUnknownError) {
  EXPECT_THAT(PosixError(4095, "x"),
              StatusIs(absl::StatusCode::kUnknown, "x: unknown errno 4095"));
}

}  // namespace
}  // namespace dcp
