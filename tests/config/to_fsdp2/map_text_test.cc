// SPDX-License-Identifier: Apache-2.0

#include "config/to_fsdp2/map_text.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::config {
namespace {

using ::testing::ElementsAre;

// "name=value" for each entry.
std::vector<std::string> Entries(absl::string_view text,
                                 const std::vector<absl::string_view>& path) {
  const std::optional<MapText> map = FindMapText(text, path);
  if (!map.has_value()) return {"nothing"};
  std::vector<std::string> entries;
  for (const EntryText& entry : map->entries) {
    entries.push_back(absl::StrCat(entry.name, "=", entry.value.In(text)));
  }
  return entries;
}

TEST(MapText, FindsEntriesByIndent) {
  constexpr absl::string_view kText =
      "# c: d\n---\na: 1\nb:\n    # e: f\n    c: x y  # z\n\n"
      "    'd: e': \"f # g\"\n    \"h\" : [1,\n 2] # i\nj: 3\n";
  EXPECT_THAT(Entries(kText, {}),
              ElementsAre("a=1", ::testing::StartsWith("b=    c: x y"), "j=3"));
  EXPECT_THAT(Entries(kText, {"b"}),
              ElementsAre("c=x y", "d: e=\"f # g\"", "h=[1,\n 2]"));
}

TEST(MapText, ItemsMayAlignWithTheirKey) {
  constexpr absl::string_view kText = "m:\n  a:\n  - 1\n  - b: 2\n  c: 3\n";
  EXPECT_THAT(Entries(kText, {"m"}), ElementsAre("a=  - 1\n  - b: 2", "c=3"));
}

TEST(MapText, ReadsMultilineScalarsAsOneValue) {
  EXPECT_THAT(Entries("a: |\n  b: 1\n\n  c\nd: \"e\n  f: g\"\nh: i\n", {}),
              ElementsAre("a=|\n  b: 1\n\n  c", "d=\"e\n  f: g\"", "h=i"));
}

TEST(MapText, WholeExcludesCommentsBelowTheEntry) {
  constexpr absl::string_view kText = "a:\n- 1 # x\n# of b\nb: 2";
  const std::optional<MapText> map = FindMapText(kText, {});
  ASSERT_TRUE(map.has_value());
  ASSERT_EQ(map->entries.size(), 2u);
  EXPECT_EQ(map->entries[0].whole.In(kText), "a:\n- 1 # x\n");
  EXPECT_EQ(map->entries[1].whole.In(kText), "b: 2");
}

TEST(MapText, BracesMayNestAndHoldQuotes) {
  constexpr absl::string_view kText =
      "{\"a\": {\"b\": \"}, \\\"\", \"c\": [1, {\"d\": 2}], \"e\": null}}";
  EXPECT_THAT(Entries(kText, {"a"}),
              ElementsAre("b=\"}, \\\"\"", "c=[1, {\"d\": 2}]", "e=null"));
  EXPECT_THAT(Entries("a: {b: don't, c: 'it''s', d: }\n", {"a"}),
              ElementsAre("b=don't", "c='it''s'", "d="));
}

TEST(MapText, NoticesCommentsBetweenBraces) {
  EXPECT_TRUE(FindMapText("{a: 1, # b\n c: 2}", {})->has_comments);
  EXPECT_FALSE(FindMapText("{a: '# b'} # c\n", {})->has_comments);
}

TEST(MapText, FindsNothingThatIsNotAMap) {
  for (const absl::string_view text :
       {"a: 1\n", "a: &x\n  b: 1\n", "a: *x\n", "a:\n", "b: {}\n", "", "- a\n",
        "a: {b: 1", "a: {b", "a: \"b", "? a\n: b\n", "a: [", "{", "{,",
        "{a:"}) {
    EXPECT_THAT(Entries(text, {"a"}), ElementsAre("nothing")) << text;
  }
}

TEST(MapText, WithoutQuotesRemovesOnlyPairs) {
  EXPECT_EQ(WithoutQuotes("'a'"), "a");
  EXPECT_EQ(WithoutQuotes("\"a\""), "a");
  EXPECT_EQ(WithoutQuotes("a'"), "a'");
  EXPECT_EQ(WithoutQuotes("'"), "'");
  EXPECT_EQ(WithoutQuotes(""), "");
}

}  // namespace
}  // namespace fsdp::config
