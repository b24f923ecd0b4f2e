// SPDX-License-Identifier: Apache-2.0

#include "proto/messages/field_checks.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "tests/testing/status_matchers.h"

namespace dcp::messages {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::StartsWith;

TEST(FieldChecks, ErrorsBeginWithTheField) {
  const absl::Status status = Invalid(Index("mesh.axes", 2), " is ", 0);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               StartsWith("mesh.axes[2] is 0")));
  EXPECT_EQ(BlamedField(status), "mesh.axes[2]");
}

TEST(FieldChecks, PatternsAreShortText) {
  EXPECT_OK(CheckPattern(std::string(kMaxPatternBytes, 'a'), "p"));
  EXPECT_THAT(CheckPattern(std::string(kMaxPatternBytes + 1, 'a'), "p"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckPattern(std::string("a\0b", 3), "p"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("p contains a NUL")));
}

TEST(FieldChecks, TextIsUtf8AndCutBetweenCharacters) {
  EXPECT_EQ(Text("f\xFF"), "f\xEF\xBF\xBD");
  const std::string text =
      "a" + std::string(kMaxTextBytes - 2, 'b') + "\xC3\xA4";
  EXPECT_EQ(Text(text).substr(0, kMaxTextBytes - 1),
            text.substr(0, kMaxTextBytes - 1));
  EXPECT_LE(Text(text).size(), kMaxTextBytes);
}

}  // namespace
}  // namespace dcp::messages
