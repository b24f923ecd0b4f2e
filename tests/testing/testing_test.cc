// SPDX-License-Identifier: Apache-2.0
// Tests the matchers, the directory and the digest that other tests rely on.

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sha256.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(StatusMatchers, StatusIsComparesCodeAndMessage) {
  const absl::Status status = absl::DataLossError("offset 7 exceeds 3");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("offset")));
  EXPECT_THAT(status, Not(StatusIs(absl::StatusCode::kNotFound)));
  EXPECT_THAT(status,
              Not(StatusIs(absl::StatusCode::kDataLoss, HasSubstr("size"))));
}

TEST(StatusMatchers, TakeStatusOr) {
  const absl::StatusOr<int> seven = 7;
  const absl::StatusOr<int> error = absl::NotFoundError("no number");
  EXPECT_OK(seven);
  EXPECT_THAT(seven, IsOkAndHolds(7));
  EXPECT_THAT(seven, Not(IsOkAndHolds(8)));
  EXPECT_THAT(error, Not(IsOk()));
  EXPECT_THAT(error, StatusIs(absl::StatusCode::kNotFound, "no number"));
  ASSERT_OK_AND_ASSIGN(const int value, seven);
  EXPECT_EQ(value, 7);
}

TEST(Sha256, MatchesKnownTexts) {
  EXPECT_EQ(Sha256(""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(TempDir, IsEmptyThenHoldsFilesThenIsGone) {
  std::string path;
  {
    TempDir dir;
    path = dir.path();
    EXPECT_TRUE(std::filesystem::is_empty(path));
    const std::string file = dir.WriteFile("a/b", "contents");
    EXPECT_EQ(file, dir.Join("a/b"));
    EXPECT_EQ(ReadFile(file), "contents");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TempDir, TwoAreDistinct) {
  TempDir first;
  TempDir second;
  EXPECT_NE(first.path(), second.path());
}

}  // namespace
}  // namespace dcp::testing
