// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/json/json_value.h"

#include <string>

#include "dcp/base/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;

std::string JsonValueText(absl::string_view json) {
  ValueArena arena;
  const absl::StatusOr<Value> value = ParseJsonValue(json, arena);
  return value.ok() ? ToString(*value, 1000) : value.status().ToString();
}

TEST(JsonValue, EqualsPythonsResult) {
  EXPECT_EQ(
      JsonValueText(R"({"a": [1, -2, 0.5, 1e3], "b": {"c": null}, "d": true})"),
      "{'a': [1, -2, 0.5, 1000.0], 'b': {'c': None}, 'd': True}");
  EXPECT_EQ(JsonValueText("[]"), "[]");
  EXPECT_EQ(JsonValueText("{}"), "{}");
  EXPECT_EQ(JsonValueText("\"x\""), "'x'");
  EXPECT_EQ(JsonValueText("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(JsonValueText("9223372036854775808"), "9.223372036854776e+18");
}

TEST(JsonValue, RefusesInvalidJson) {
  ValueArena arena;
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("{\"a\" 1}"),
        std::string("[1,]"), std::string("1 2"),
        std::string(kMaxJsonDepth + 1, '[')}) {
    EXPECT_THAT(ParseJsonValue(text, arena),
                StatusIs(absl::StatusCode::kDataLoss))
        << text;
  }
}

}  // namespace
}  // namespace dcp
