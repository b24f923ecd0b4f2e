// SPDX-License-Identifier: Apache-2.0

#include "dcp/options/option_words.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = OptionWord::Kind;
using Style = OptionSyntax::Style;

constexpr OptionSpec kOptions[] = {
    {"output-file", true}, {"output-dir", true}, {"json", false}};

// Each word as "kind name=value" or "kind text".
std::vector<std::string> Split(const std::vector<std::string>& args,
                               const OptionSyntax& syntax = {}) {
  const std::vector<std::string> kinds = {"option",  "missing",   "unwanted",
                                          "unknown", "ambiguous", "short",
                                          "operand"};
  std::vector<std::string> texts;
  for (const OptionWord& word : SplitOptionWords(args, kOptions, syntax)) {
    std::string text = kinds[static_cast<size_t>(word.kind)] + " ";
    text += word.kind == Kind::kShort || word.kind == Kind::kOperand
                ? word.text
                : word.name;
    if (word.has_value) text += "=" + word.value;
    texts.push_back(text);
  }
  return texts;
}

TEST(SplitOptionWords, AValueFollowsAnEqualsSignOrIsTheNextWord) {
  EXPECT_THAT(Split({"--output-file=a=b", "--output-dir", "--json", "--json"}),
              ElementsAre("option output-file=a=b", "option output-dir=--json",
                          "option json"));
  EXPECT_THAT(Split({"--output-file="}), ElementsAre("option output-file="));
  EXPECT_THAT(Split({}), IsEmpty());
}

TEST(SplitOptionWords, ReportsWrongOptions) {
  EXPECT_THAT(
      Split({"--json=1", "--jsn=2", "--output-file"}),
      ElementsAre("unwanted json=1", "unknown jsn=2", "missing output-file"));
}

TEST(SplitOptionWords, TwoDashesEndACommandsOptions) {
  EXPECT_THAT(Split({"a", "-", "-q", "--", "--json", "-q", "--"}),
              ElementsAre("operand a", "operand -", "short -q",
                          "operand --json", "operand -q", "operand --"));
}

TEST(SplitOptionWords, SettingsMayComeFromAFile) {
  const OptionSyntax settings = {.style = Style::kSettings};
  EXPECT_THAT(
      Split({"--json=false", "--", "--output-file", "--json"}, settings),
      ElementsAre("option json=false", "operand --", "missing output-file",
                  "option json"));
}

TEST(SplitOptionWords, AcceptsAbbreviationsIfAllowed) {
  const OptionSyntax syntax = {.abbreviations = true};
  EXPECT_THAT(
      Split({"--js", "--output=1", "--output-f", "a"}, syntax),
      ElementsAre("option js", "ambiguous output=1", "option output-f=a"));
  const std::vector<OptionWord> words =
      SplitOptionWords({"--js"}, kOptions, syntax);
  EXPECT_EQ(words.at(0).index, 2u);
  EXPECT_THAT(Split({"--js"}), ElementsAre("unknown js"));
}

TEST(SplitOptionWords, AcceptsUnderscoresIfAllowed) {
  EXPECT_THAT(Split({"--output_file", "a"}, {.underscores = true}),
              ElementsAre("option output_file=a"));
  EXPECT_THAT(Split({"--output_file", "a"}),
              ElementsAre("unknown output_file", "operand a"));
}

}  // namespace
}  // namespace dcp
