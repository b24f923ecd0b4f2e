// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "document/document.h"
#include "document/node.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp::document {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

constexpr StrictLimits kLimits = {
    .depth = 16, .keys = 1024, .text_bytes = 4096};

absl::StatusOr<Node> ParseStrict(absl::string_view text) {
  return ParseStrictYaml("m.yaml", text, kLimits);
}

// As JSON without quotes, with ~ for null.
std::string YamlText(const Node& tree) {
  switch (tree.kind) {
    case Node::Kind::kNull:
      return "~";
    case Node::Kind::kList:
      return absl::StrCat("[",
                          absl::StrJoin(tree.items, ", ",
                                        [](std::string* out, const Node& t) {
                                          out->append(YamlText(t));
                                        }),
                          "]");
    case Node::Kind::kMap:
      break;
    default:
      return tree.text;
  }
  return absl::StrCat(
      "{",
      absl::StrJoin(tree.entries, ", ",
                    [](std::string* out, const Node::Entry& entry) {
                      absl::StrAppend(out, entry.key, ": ",
                                      YamlText(entry.value));
                    }),
      "}");
}

TEST(StrictYaml, ReadsMapsListsAndTexts) {
  ASSERT_OK_AND_ASSIGN(const Node tree, ParseStrict(R"(# comment
a: 1
b:
- x.{i}.w: (a + b) c   # comment
- "{tp}/w": s c
c: {d: not tied, e: ["f g", ~, null, "~"]}
h:
)"));
  EXPECT_EQ(YamlText(tree),
            "{a: 1, b: [{x.{i}.w: (a + b) c}, {{tp}/w: s c}], c: {d: not tied, "
            "e: [f g, ~, ~, ~]}, h: ~}");
  const Node& list = *tree.Find("b");
  EXPECT_EQ(list.items[1].place.line, 5);
  EXPECT_EQ(list.items[1].entries[0].value.key_position.line, 5);
  EXPECT_EQ(list.items[1].place.column, 3);
  EXPECT_EQ(tree.Find("z"), nullptr);
  EXPECT_EQ(tree.Find("c")->Find("e")->items[3].kind, Node::Kind::kString);
}

TEST(StrictYaml, ReadsEmptyText) {
  ASSERT_OK_AND_ASSIGN(const Node tree, ParseStrict(""));
  EXPECT_EQ(tree.kind, Node::Kind::kNull);
}

TEST(StrictYaml, RefusesWithTheLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a: &x 1\nb: *x\n", "m.yaml:1:4: has an anchor"},
      {"a: 1\nb: *x\n", "m.yaml:2:"},
      {"a: 1\n<<: {b: 2}\n", "m.yaml:2:1: has a merge key"},
      {"a: 1\nb: 2\na: 3\n", "m.yaml:3:1: has the key a twice"},
      {"a: !!int 1\n", "has a tag"},
      {"a: !x {b: 1}\n", "has a tag"},
      {"a: !!map {b: 1}\n", "has a tag"},
      {"a: 1\n---\nb: 2\n", "second document"},
      {"a: 1\n\tb: 2\n", "m.yaml:2:1: the line is indented with a tab"},
      {"a: \"b\nc: d\n", "quote that is not closed"},
      {"a: 'b\nc: d\n", "quote that is not closed"},
      {"a: [\"b\n", "m.yaml:1:5: has a quote that is not closed"},
      {"a: 1\nb: \x04\n", "m.yaml:2: has a control character at byte 8"},
      {"a: [1\n", "not valid YAML"},
      {"a: 1\n b: 2\n", "not valid YAML"},
      {"? [a]\n: b\n", "key that is not a text"},
      {": b\n", "key that is empty"},
      {"a: " + std::string(kLimits.depth + 1, '[') +
           std::string(kLimits.depth + 1, ']'),
       "nested deeper than 16"},
      {"a: " + std::string(100000, '['), "m.yaml:1:"},
      {std::string(100000, '{'), "m.yaml:1:"},
      {"a: " + std::string(kLimits.text_bytes + 1, 'b'), "more than 4096"},
      {std::string(kMaxDocumentBytes + 1, '\n'), "more than 1048576"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseStrict(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr(message)))
        << text.substr(0, 80);
  }
}

TEST(StrictYaml, RefusesTooManyValuesAndKeys) {
  std::string list = "[";
  for (size_t i = 0; i < kMaxDocumentNodes; ++i) list += "a,";
  EXPECT_THAT(ParseStrict(list + "]"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("more than 65536 values")));
  std::string map;
  for (size_t i = 0; i <= kLimits.keys; ++i) absl::StrAppend(&map, i, ":\n");
  EXPECT_THAT(ParseStrict(map), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("more than 1024 keys")));
}

}  // namespace
}  // namespace dcp::document
