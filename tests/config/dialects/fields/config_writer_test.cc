// SPDX-License-Identifier: Apache-2.0

#include "config/dialects/fields/config_writer.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace fsdp::config {
namespace {

TEST(Writing, QuotesCharactersThatEndOrBreakAString) {
  EXPECT_EQ(QuotedText("a b"), "\"a b\"");
  EXPECT_EQ(QuotedText("\"\\\n\x7f"), "\"\\\"\\\\\\u000a\\u007f\"");
  EXPECT_EQ(QuotedText("Grüße"), "\"Grüße\"");
}

TEST(Writing, RealsHaveAPointAndReadBack) {
  EXPECT_EQ(RealText(8e-5), "8.0e-05");
  EXPECT_EQ(RealText(0.1), "0.1");
  EXPECT_EQ(RealText(1), "1.0");
  EXPECT_EQ(RealText(1e300), "1.0e+300");
}

TEST(Writing, PlaceIsTheUsersOrTheSettingName) {
  EXPECT_EQ(to_string(SettingPlace(Setting<int64_t>(1), "mesh.shard")),
            "mesh.shard");
  EXPECT_EQ(
      SettingPlace(Setting<int64_t>(1, {.file = "a.toml", .key = "b"}), "c"),
      (SourceLocation{.file = "a.toml", .key = "b"}));
}

}  // namespace
}  // namespace fsdp::config
