// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/language/name_template.h"

#include <cstdint>
#include <optional>
#include <random>
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

NameTemplate ParseTemplate(absl::string_view text) {
  absl::StatusOr<NameTemplate> name = NameTemplate::Parse(text);
  EXPECT_OK(name);
  EXPECT_OK(name->Resolve([](absl::string_view) { return 3; }));
  return *std::move(name);
}

// "i=4 w=bias", or "no".
std::string Match(absl::string_view text, absl::string_view name) {
  const NameTemplate pattern = ParseTemplate(text);
  const std::optional<std::vector<NameValue>> values = pattern.Match(name);
  if (!values.has_value()) return "no";
  EXPECT_EQ(pattern.Format(*values), name);
  std::vector<std::string> parts;
  for (size_t v = 0; v < values->size(); ++v) {
    const NameTemplate::Variable& variable = pattern.variables()[v];
    parts.push_back(absl::StrCat(variable.name, "=",
                                 variable.is_index
                                     ? absl::StrCat((*values)[v].number)
                                     : (*values)[v].text));
  }
  return absl::StrJoin(parts, " ");
}

TEST(NameTemplate, MatchesWholeNames) {
  EXPECT_EQ(Match("norm.weight", "norm.weight"), "");
  EXPECT_EQ(Match("norm.weight", "norm.weights"), "no");
  EXPECT_EQ(Match("norm.weight", "x.norm.weight"), "no");
  EXPECT_EQ(Match("l.{i}.w", "l.4.w"), "i=4");
  EXPECT_EQ(Match("l.{i}.w", "l.40.w"), "i=40");
  EXPECT_EQ(Match("l.{i}.w", "l.0.w"), "i=0");
  EXPECT_EQ(Match("l.{i}.w", "l.04.w"), "no");
  EXPECT_EQ(Match("l.{i}.w", "l..w"), "no");
  EXPECT_EQ(Match("l.{i}.w", "l.-1.w"), "no");
  EXPECT_EQ(Match("l.{i}.w", "l.x.w"), "no");
  EXPECT_EQ(Match("l.{i}.w", "l.4.w.w"), "no");
  EXPECT_EQ(Match("w{e}", "w12"), "e=12");
  EXPECT_EQ(Match("w{e}", "w"), "no");
  EXPECT_EQ(Match("shard_{a}_{b}", "shard_3_64"), "a=3 b=64");
  EXPECT_EQ(Match("l.{i}", "l.999999999999999999999"), "no");
}

TEST(NameTemplate, AddsToAnIndex) {
  EXPECT_EQ(Match("l.{m + layers}.w", "l.3.w"), "m=0");
  EXPECT_EQ(Match("l.{m + layers}.w", "l.5.w"), "m=2");
  EXPECT_EQ(Match("l.{m + layers}.w", "l.2.w"), "no");
  ASSERT_OK_AND_ASSIGN(NameTemplate negative, NameTemplate::Parse("l.{m + x}"));
  EXPECT_THAT(negative.Resolve([](absl::string_view) { return -1; }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("adds -1 to an index")));
}

TEST(NameTemplate, MatchesTexts) {
  EXPECT_EQ(Match("q.{w:weight|bias}", "q.bias"), "w=bias");
  EXPECT_EQ(Match("q.{w:weight|bias}", "q.scale"), "no");
  EXPECT_EQ(Match("{w:a|ab}c", "abc"), "w=ab");
  EXPECT_EQ(Match("s.{x:*}.w", "s.a-b.w"), "x=a-b");
  EXPECT_EQ(Match("s.{x:*}.w", "s.a.b.w"), "no");
  EXPECT_EQ(Match("s.{x:**}.w", "s.a.b.w"), "x=a.b");
  EXPECT_EQ(Match("s.{x:**}.w", "s..w"), "no");
  EXPECT_EQ(Match("o.{p:**}.{s:*}", "o.a.b.c"), "p=a.b s=c");
  EXPECT_EQ(Match("o.{s:*}.{p:**}", "o.a.b.c"), "s=a p=b.c");
  // Earlier ones take as much as they can.
  EXPECT_EQ(Match("{x:**}-{y:**}", "a-b-c"), "x=a-b y=c");
  EXPECT_EQ(Match("l{i}{j}", "l123"), "i=12 j=3");
}

TEST(NameTemplate, AVariableThatOccursTwiceHasOneValue) {
  EXPECT_EQ(Match("b.{i}.l.{i}", "b.2.l.2"), "i=2");
  EXPECT_EQ(Match("b.{i}.l.{i}", "b.2.l.3"), "no");
  EXPECT_EQ(Match("{x:**}.{x:**}", "a.b.a.b"), "x=a.b");
}

TEST(NameTemplate, HostileNamesEndQuickly) {
  const std::string many(kMaxMappingTextBytes - 1, 'a');
  EXPECT_EQ(Match("{a:**}a{b:**}a{c:**}a{d:**}a{e:**}b", many), "no");
  EXPECT_EQ(Match("{a:**}a{b:**}a{a:**}a{d:**}a{b:**}b", many), "no");
  EXPECT_EQ(Match("x{a:**}", "x" + std::string(kMaxMappingTextBytes, 'a')),
            "no");
}

TEST(NameTemplate, RefusesInvalidTemplates) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "no text outside"},
      {"{i}", "no text outside"},
      {"{x:**}{i}", "no text outside"},
      {"l.{i", "without a counterpart"},
      {"l.i}", "without a counterpart"},
      {"l.{{i}}", "without a counterpart"},
      {"l.{}", "not a word"},
      {"l.{1}", "not a word"},
      {"l.{a b}", "not a word"},
      {"l.{i +}", "the formula"},
      {"l.{x:}", "write {x:a|b}"},
      {"l.{x:a|}", "write {x:a|b}"},
      {"l.{x:a*}", "write {x:a|b}"},
      {"l.{x:***}", "write {x:a|b}"},
      {"l.{i}.{i:*}", "as an index and as a text"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(
        NameTemplate::Parse(text),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << text;
  }
  std::string many = "x";
  for (size_t i = 0; i <= kMaxMappingSlots; ++i) many += "{i}.";
  EXPECT_THAT(
      NameTemplate::Parse(many),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 16")));
  EXPECT_THAT(NameTemplate::Parse(std::string(kMaxMappingTextBytes + 1, 'a')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("longer than 4096")));
}

TEST(NameTemplate, EveryFormattedNameMatches) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t n) -> uint32_t {
    return static_cast<uint32_t>(random() % n);
  };
  for (int round = 0; round < 500; ++round) {
    std::string text = "n";
    const uint32_t num_slots = 1 + below(4);
    for (uint32_t s = 0; s < num_slots; ++s) {
      const char* const kSlots[] = {"{i%}", "{j% + 3}", "{x%:*}", "{y%:**}",
                                    "{w%:a|b.c}"};
      std::string slot = kSlots[below(5)];
      slot.replace(slot.find('%'), 1, absl::StrCat(s));
      absl::StrAppend(&text, below(2) == 0 ? "." : "_", slot);
    }
    const NameTemplate name = ParseTemplate(text);
    std::vector<NameValue> values;
    for (const NameTemplate::Variable& variable : name.variables()) {
      NameValue value;
      if (variable.is_index) value.number = below(1000);
      if (variable.name[0] == 'x') value.text = "p";
      if (variable.name[0] == 'y') value.text = "p.q_r";
      if (variable.name[0] == 'w') value.text = "b.c";
      values.push_back(value);
    }
    const std::string made = name.Format(values);
    const std::optional<std::vector<NameValue>> again = name.Match(made);
    ASSERT_TRUE(again.has_value()) << text << " " << made;
    // The values may differ, but they say the same name.
    EXPECT_EQ(name.Format(*again), made) << text;
  }
}

}  // namespace
}  // namespace dcp
