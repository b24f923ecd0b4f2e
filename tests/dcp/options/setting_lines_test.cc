// SPDX-License-Identifier: Apache-2.0

#include "dcp/options/setting_lines.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> SplitLines(absl::string_view text,
                                    CommentStyle comments) {
  std::vector<std::string> lines;
  for (const SettingLine& line : SplitSettingLines(text, comments)) {
    lines.push_back(absl::StrCat(line.number, " ", line.key,
                                 line.has_value ? "|" : "", line.value));
  }
  return lines;
}

TEST(SplitSettingLines, EachLineIsAKeyAndAValue) {
  EXPECT_THAT(SplitLines("a = 1\r\n\n  b=2 = 3 \nflag\nempty =",
                         CommentStyle::kWholeLines),
              ElementsAre("1 a|1", "3 b|2 = 3", "4 flag", "5 empty|"));
}

TEST(SplitSettingLines, CommentsAreWholeLinesOrLineEnds) {
  const char* text = "# c = 1\na = b#2 # d\n  # e";
  EXPECT_THAT(SplitLines(text, CommentStyle::kWholeLines),
              ElementsAre("2 a|b#2 # d"));
  EXPECT_THAT(SplitLines(text, CommentStyle::kAnywhere), ElementsAre("2 a|b"));
}

}  // namespace
}  // namespace dcp
