// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/language/yaml_tree.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

// As JSON without quotes, with ~ for null.
std::string YamlText(const YamlTree& tree) {
  switch (tree.kind) {
    case YamlTree::Kind::kNull:
      return "~";
    case YamlTree::Kind::kText:
      return tree.text;
    case YamlTree::Kind::kList:
      return absl::StrCat(
          "[",
          absl::StrJoin(tree.items, ", ",
                        [](std::string* out, const YamlTree& t) {
                          out->append(YamlText(t));
                        }),
          "]");
    case YamlTree::Kind::kMap:
      break;
  }
  return absl::StrCat(
      "{",
      absl::StrJoin(tree.entries, ", ",
                    [](std::string* out, const YamlTree::Entry& entry) {
                      absl::StrAppend(out, entry.key, ": ",
                                      YamlText(entry.value));
                    }),
      "}");
}

TEST(YamlTree, ReadsMapsListsAndTexts) {
  ASSERT_OK_AND_ASSIGN(const YamlTree tree, ParseYamlTree(R"(# comment
a: 1
b:
- x.{i}.w: (a + b) c   # comment
- "{tp}/w": s c
c: {d: not tied, e: ["f g", ~, null, "~"]}
h:
)",
                                                          "m.yaml"));
  EXPECT_EQ(YamlText(tree),
            "{a: 1, b: [{x.{i}.w: (a + b) c}, {{tp}/w: s c}], c: {d: not tied, "
            "e: [f g, ~, ~, ~]}, h: ~}");
  const YamlTree& list = *tree.Find("b");
  EXPECT_EQ(list.items[1].line, 5);
  EXPECT_EQ(list.items[1].entries[0].line, 5);
  EXPECT_EQ(list.items[1].column, 3);
  EXPECT_EQ(tree.Find("z"), nullptr);
  EXPECT_TRUE(tree.Find("c")->Find("e")->items[3].is(YamlTree::Kind::kText));
}

TEST(YamlTree, ReadsEmptyText) {
  ASSERT_OK_AND_ASSIGN(const YamlTree tree, ParseYamlTree("", "m.yaml"));
  EXPECT_TRUE(tree.is(YamlTree::Kind::kNull));
}

TEST(YamlTree, RefusesWithTheLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a: &x 1\nb: *x\n", "m.yaml:1:4: has an anchor"},
      {"a: 1\nb: *x\n", "m.yaml:2:"},
      {"a: 1\n<<: {b: 2}\n", "m.yaml:2:1: has a merge key"},
      {"a: 1\nb: 2\na: 3\n", "m.yaml:3:1: has the key a twice"},
      {"a: !!int 1\n", "has a tag"},
      {"a: !x {b: 1}\n", "has a tag"},
      {"a: 1\n---\nb: 2\n", "second document"},
      {"a: 1\n\tb: 2\n", "m.yaml:2:1: the line is indented with a tab"},
      {"a: \"b\nc: d\n", "quote that is not closed"},
      {"a: 'b\nc: d\n", "quote that is not closed"},
      {"a: [1\n", "not valid YAML"},
      {"a: 1\n b: 2\n", "not valid YAML"},
      {"? [a]\n: b\n", "key that is not a text"},
      {": b\n", "key that is empty"},
      {"a: " + std::string(kMaxMappingDepth + 1, '[') +
           std::string(kMaxMappingDepth + 1, ']'),
       "nested deeper than 16"},
      {"a: " + std::string(100000, '['), "m.yaml:1:"},
      {std::string(100000, '{'), "m.yaml:1:"},
      {"a: " + std::string(kMaxMappingTextBytes + 1, 'b'), "more than 4096"},
      {std::string(kMaxMappingBytes + 1, '\n'), "more than 1048576"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(
        ParseYamlTree(text, "m.yaml"),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << text.substr(0, 80);
  }
}

TEST(YamlTree, RefusesTooManyValuesAndKeys) {
  std::string list = "[";
  for (size_t i = 0; i < kMaxMappingNodes; ++i) list += "a,";
  EXPECT_THAT(ParseYamlTree(list + "]", "m.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("more than 65536 values")));
  std::string map;
  for (size_t i = 0; i <= kMaxMappingKeys; ++i) absl::StrAppend(&map, i, ":\n");
  EXPECT_THAT(ParseYamlTree(map, "m.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("more than 1024 keys")));
}

}  // namespace
}  // namespace dcp
