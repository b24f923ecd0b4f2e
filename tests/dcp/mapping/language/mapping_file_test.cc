// SPDX-License-Identifier: Apache-2.0

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/mapping/language/mapping_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::string_view kFileHead = R"(tessera-mapping: 1
name: test
config:
  i: num_layers
  e: [num_experts, 4]
params:
  tp: 1
sides:
  a:
  b:
  c: {of: b, spell: [[blocks, layers]], stack: i}
)";

absl::StatusOr<MappingFile> Read(absl::string_view rest) {
  return ReadMappingFile(absl::StrCat(kFileHead, rest), "m.yaml");
}

TEST(MappingFile, ReadsARule) {
  ASSERT_OK_AND_ASSIGN(const MappingFile file, Read(R"(
model_types: [x, y]
states: {a: "o.{param:**}.{slot:*}"}
drop: {b: ["blocks.{i}.extra"]}
rules:
- a: [{"l.{i}.q": (h 2 r) c}, {=0: pad c}]
  b: {"blocks.{i}.q": ((h 2 r) + pad) c}
  when: tp > 0
  for: {i: 1 .. num_layers - 1}
  of: model
  optional: true
  dtype: bfloat16
)"));
  EXPECT_EQ(file.name, "test");
  EXPECT_THAT(file.model_types, ElementsAre("x", "y"));
  EXPECT_EQ(file.pivot(), "a");
  EXPECT_EQ(file.FindSize("e")->formulas.size(), 2U);
  EXPECT_EQ(file.FindSize("e")->line, 5);
  EXPECT_EQ(file.params.at("tp"), 1);
  EXPECT_TRUE(file.FindSide("a")->states.has_value());
  ASSERT_EQ(file.rules.size(), 1U);
  const MappingRule& rule = file.rules[0];
  EXPECT_EQ(rule.line, 17);
  EXPECT_EQ(rule.part, MappingRule::Part::kModel);
  EXPECT_TRUE(rule.optional.has_value());
  EXPECT_EQ(rule.dtype, DType::kBFloat16);
  EXPECT_EQ(rule.when->text(), "tp > 0");
  ASSERT_EQ(rule.ranges.size(), 1U);
  EXPECT_EQ(rule.ranges[0].end.text(), "num_layers - 1");
  EXPECT_FALSE(rule.sides.at("a")[1].name.has_value());
}

TEST(MappingFile, SpellsDerivedSides) {
  ASSERT_OK_AND_ASSIGN(const MappingFile file, Read(R"(
drop: {b: ["blocks.{i}.extra"]}
rules:
- a: l.{i}.w
  b: blocks.{i}.w
- a: norm
  b: blocks.norm
  copies: {b: [blocks.head]}
- a: {"l.{i}.x": h d}
  b: {"blocks.{i}.x": h d}
  c: {"own.{i}.x": d h}
)"));
  const MappingTerm& stacked = file.rules[0].sides.at("c")[0];
  EXPECT_EQ(stacked.name->text(), "layers.w");
  EXPECT_EQ(stacked.axes.dims().size(), 2U);
  EXPECT_EQ(file.rules[1].sides.at("c")[0].name->text(), "layers.norm");
  EXPECT_THAT(file.rules[1].copies.at("c"), ElementsAre("layers.head"));
  EXPECT_EQ(file.rules[2].sides.at("c")[0].name->text(), "own.{i}.x");
  ASSERT_EQ(file.FindSide("c")->drop.size(), 1U);
  EXPECT_EQ(file.FindSide("c")->drop[0].text(), "layers.extra");
}

TEST(MappingFile, ScalesAndAddsForDerivedSidesToo) {
  ASSERT_OK_AND_ASSIGN(const MappingFile file, Read(R"(
rules:
- a: x
  b: y
  add: {b: -1}
  scale: {b: 0.5}
)"));
  const std::map<std::string, Rescale>& rescaled = file.rules[0].rescaled;
  ASSERT_EQ(rescaled.size(), 2U);
  EXPECT_EQ(rescaled.at("b"), (Rescale{.scale = 0.5F, .add = -1}));
  EXPECT_EQ(rescaled.at("c"), rescaled.at("b"));
}

TEST(MappingFile, ReadsHowASideStoresBlocks) {
  const auto with = [](absl::string_view blocks) {
    return ReadMappingFile(
        absl::StrCat("tessera-mapping: 1\nname: t\nsides: {a: {blocks: ",
                     blocks, "}, b: }\nrules: [{a: x, b: y}]"),
        "m.yaml");
  };
  const std::string names =
      "kind: fp8-128, weight: \"{x:**}.w\", codes: \"{x:**}.c\", scales: "
      "\"{x:**}.s\"";
  ASSERT_OK_AND_ASSIGN(const MappingFile file,
                       with(absl::StrCat("{", names, ", except: [head.w]}")));
  ASSERT_EQ(file.sides[0].blocks->except.size(), 1U);
  const std::pair<std::string, std::string> cases[] = {
      {"{kind: fp8-128}", "blocks has no key weight"},
      {absl::StrReplaceAll(absl::StrCat("{", names, "}"), {{"fp8", "int8"}}),
       "not fp8-128 or mxfp4"},
      {absl::StrReplaceAll(absl::StrCat("{", names, "}"), {{"{x:**}.c", "c"}}),
       "do not have the same variables"},
      {absl::StrCat("{", names, ", except: [\"{i\"]}"), "counterpart"},
      {absl::StrCat("{", names, ", only: [x]}"), "unknown key only"},
  };
  for (const auto& [blocks, says] : cases) {
    EXPECT_THAT(with(blocks),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(says)))
        << blocks;
  }
}

TEST(MappingFile, WritesOutRulesBelowEach) {
  ASSERT_OK_AND_ASSIGN(const MappingFile file, Read(R"(
rules:
- each:
  - {A: "l.{i}", B: "m.{i}", all: 0 .. 2}
  - {A: "x", B: "y", all: 0 .. 0, optional: true}
  rules:
  - a: $A.norm
    b: $B.norm
    for: {i: $all}
  - a: {$A.w: f c}
    b: {"pre.$B.w": c f}
)"));
  ASSERT_EQ(file.rules.size(), 4U);
  EXPECT_EQ(file.rules[0].sides.at("a")[0].name->text(), "l.{i}.norm");
  EXPECT_EQ(file.rules[1].sides.at("b")[0].name->text(), "pre.m.{i}.w");
  EXPECT_EQ(file.rules[2].sides.at("b")[0].name->text(), "y.norm");
  EXPECT_EQ(file.rules[0].line, 18);
  EXPECT_EQ(file.rules[2].line, 18);
  EXPECT_FALSE(file.rules[1].optional.has_value());
  EXPECT_TRUE(file.rules[3].optional.has_value());
}

TEST(MappingFile, RefusesRulesThatMakeNoSense) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[{a: x}, {b: y}]", "does not say a, the first side"},
      {"[{a: x, bb: y}]", "unknown key bb, not one of when"},
      {"[{a: x, whn: 1}]", "unknown key whn; is when meant?"},
      {"[{a: x, b: []}]", "has no terms"},
      {"[{a: x, b: [[y]]}]", "neither NAME nor NAME: AXES"},
      {"[{a: x, b: {y: a, z: b}}]", "neither NAME nor NAME: AXES"},
      {"[{a: x, b: {y: [a]}}]", "axes of a term are not a text"},
      {"[{a: x, b: {=1: a}}]", "the only constant is =0"},
      {"[{a: {x: f c}, b: {y: f k}}]", "has c, but the one of b does not"},
      {"[{a: {x: f c}, b: y}]", "has c, but the one of b does not"},
      {"[{a: x, b: {y: f}}]", "has ..., but the one of b does not"},
      {"[{a: [{x: f c}, {z: f c}], b: {y: f c}}]",
       "a has 2 summands, and b has 1"},
      {"[{a: {x: (f + f) (g + g)}, b: y}]", "two sums"},
      {"[{a: {x: (f + f) c}, b: {y: (f + k) c}}]", "has k, but the one of a"},
      {"[{a: \"{i}\", b: y}]", "no text outside"},
      {"[{a: \"x{k}\", b: y}]", "k, but the one of b does not"},
      {"[{a: \"x{t:*}\", b: y}]", "is in the names of only one of"},
      {"[{a: \"x{t:*}\", b: \"y{t}\"}]", "is in the names of only one of"},
      {"[{a: [\"x{i}\", z], b: [\"y{i}\", \"w{i}\"]}]", "different variables"},
      {"[{a: {\"x{i}\": i c}, b: {y: i c}}]", "and among its axes"},
      {"[{a: x, b: y, when: 1 +}]", "the formula"},
      {"[{a: x, b: y, of: both}]", "neither model nor states"},
      {"[{a: x, b: y, optional: n =}]", " is expected"},
      {"[{each: [{w: x, optional: 1}], rules: [{a: $w, b: y}]}]",
       "neither true nor false"},
      {"[{a: x, b: y, dtype: float31}]", "not a type"},
      {"[{a: x, b: y, for: {i: 0 - 3}}]", "not FIRST .. END"},
      {"[{a: x, b: y, for: {i: 0 .. }}]", "the formula"},
      {"[{a: x, b: y, copies: {d: [z]}}]", "d is not a side"},
      {"[{a: x, b: y, add: {a: 1}}]", "a is not a side that can have add"},
      {"[{a: x, b: y, add: {d: 1}}]", "d is not a side that can have add"},
      {"[{a: x, b: y, add: {b: one}}]", "\"one\" is not a number for add"},
      {"[{a: x, b: y, add: {b: inf}}]", "which is finite"},
      {"[{a: x, b: y, scale: {b: 0}}]", "which is finite and not 0"},
      {"[{a: x, b: y, scale: 2}]", "scale is not a map"},
      {"[{a: [{x: v}, {=0: e}], b: {y: (v + e)}, add: {b: 1}}]",
       "can have neither add nor scale"},
      {"[{a: \"x{i}\", b: \"y{i}\", copies: {b: [z]}}]",
       "need a first term without variables"},
      {"[{each: [{A: x}]}]", "each has no rules"},
      {"[{each: [{A: x}], rules: [{a: $B, b: y}]}]", "$B is not a word"},
      {"[{each: [{A: x}], rules: [{each: [], rules: []}]}]",
       "each within each"},
      {"[]", "there are no rules"},
      {"{}", "rules is not a list"},
      {"[x]", "a rule is not a map"},
  };
  for (const auto& [rules, message] : cases) {
    EXPECT_THAT(
        Read(absl::StrCat("rules: ", rules)),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 ::testing::AllOf(HasSubstr(message), HasSubstr("m.yaml:12:"))))
        << rules;
  }
}

TEST(MappingFile, AnAxisOnOneSideMayGetItsSizeFromTheModelOrTheRest) {
  for (const absl::string_view rules :
       {"[{a: \"x{i}\", b: y}]", "[{a: {x: e c}, b: {y: c}}]",
        "[{a: [{x: f}, {z: f c}], b: [{y: f c}, {w: f c}]}]",
        "[{a: x, b: \"{tp}/y\"}]", "[{a: \"x{k}\", b: y, for: {k: 0 .. 3}}]"}) {
    EXPECT_OK(Read(absl::StrCat("rules: ", rules))) << rules;
  }
}

TEST(MappingFile, RefusesHeadsThatMakeNoSense) {
  // The replaced text, the new text, and the message.
  struct Case {
    std::string from;
    std::string to;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"tessera-mapping: 1", "tessera-mapping: 2", "is \"2\", not 1"},
      {"name: test\n", "", "no key name"},
      {"name: test", "name: [x]", "name is not a text"},
      {"i: num_layers", "i: num layers", "the formula"},
      {"i: num_layers", "i: []", "i has no formula"},
      {"i: num_layers", "tp: num_layers", "in config and in params"},
      {"tp: 1", "tp: x", "not an integer"},
      {"  a:\n", "  a-b:\n", "cannot be called a-b"},
      {"  a:\n", "  when:\n", "cannot be called when"},
      {"of: b", "of: c", "not a side before it"},
      {"of: b", "of: z", "not a side before it"},
      {"of: b, ", "", "does not say which side it is of"},
      {"[blocks, layers]", "[blocks]", "not [OLD, NEW]"},
      {"stack: i", "stak: i", "unknown key stak; is stack meant?"},
      {"params:", "parms:", "unknown key parms; is params meant?"},
      {"  a:\n  b:\n  c: {of: b, spell: [[blocks, layers]], stack: i}\n",
       "  a:\n", "fewer than two sides"},
      {"name: test", "name: test\nstates: {a: x}", "needs {param:**}"},
      {"name: test", "name: test\nstates: {z: x}", "z is not a side"},
      {"name: test", "name: test\ndrop: {a: [\"{x\"]}",
       "without a counterpart"},
  };
  for (const Case& c : cases) {
    const std::string head =
        absl::StrReplaceAll(std::string(kFileHead), {{c.from, c.to}});
    ASSERT_NE(head, kFileHead) << c.from;
    EXPECT_THAT(
        ReadMappingFile(absl::StrCat(head, "rules: [{a: x, b: y}]"), "m.yaml"),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)))
        << c.to;
  }
  EXPECT_THAT(ReadMappingFile("", "m.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a rule file is not a map")));
}

TEST(MappingFile, LimitsTheSizeOfRules) {
  std::string rules = "rules:\n- each:\n";
  for (int i = 0; i < 100; ++i) rules += "  - {A: x}\n";
  rules += "  rules:\n";
  for (int i = 0; i < 100; ++i) rules += "  - {a: $A, b: y}\n";
  EXPECT_THAT(Read(rules), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("more than 4096 rules")));
  std::string words = "rules: [{each: [{A: " + std::string(4000, 'x') +
                      "}], rules: [{a: $A$A, b: y}]}]";
  EXPECT_THAT(Read(words), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("is longer than 4096")));
  std::string large = "rules:\n- each:\n";
  for (int i = 0; i < 60; ++i) {
    large += "  - {A: " + std::string(4000, 'x') + "}\n";
  }
  large += "  rules:\n";
  for (int i = 0; i < 60; ++i) large += "  - {a: $A, b: $A}\n";
  EXPECT_THAT(Read(large), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("exceed 16777216 bytes")));
  const std::string spell = absl::StrReplaceAll(
      kFileHead, {{"[blocks, layers]",
                   absl::StrCat("[b, ", std::string(2000, 'b'), "]")}});
  EXPECT_THAT(
      ReadMappingFile(absl::StrCat(spell, "rules: [{a: x, b: bbb}]"), "m.yaml"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("is longer than 4096 as c")));
}

}  // namespace
}  // namespace dcp
