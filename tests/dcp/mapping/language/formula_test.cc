// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/language/formula.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

absl::StatusOr<int64_t> Lookup(absl::string_view name) {
  if (name == "a") return 7;
  if (name == "b.c") return 3;
  if (name == "most") return kMost;
  return absl::NotFoundError(absl::StrCat(name, " is not known"));
}

absl::StatusOr<int64_t> Evaluate(absl::string_view text) {
  DCP_ASSIGN_OR_RETURN(const Formula formula, Formula::Parse(text));
  return formula.Evaluate(Lookup);
}

TEST(Formula, HasTheSameValueAsInPython) {
  const std::vector<std::pair<std::string, int64_t>> cases = {
      {"1 + 2 * 3", 7},
      {"(1 + 2) * 3", 9},
      {"10 - 3 - 2", 5},
      {"48 / 4 / 2", 6},
      {"7 // 2", 3},
      {"-7 // 2", -4},
      {"7 % 4", 3},
      {"-7 % 4", 1},
      {"7 % -4", -1},
      {"-7", -7},
      {"- -7", 7},
      {"2 * -3", -6},
      {"a + b.c", 10},
      {"a == 7", 1},
      {"a != 7", 0},
      {"a < 7", 0},
      {"a <= 7", 1},
      {"a > 6", 1},
      {"a >= 8", 0},
      {"not a", 0},
      {"not not a", 1},
      {"not a == 3", 1},
      {"a and 2", 1},
      {"0 or 0", 0},
      {"0 and 0 or 1", 1},
      {"1 or 0 and 0", 1},
      {"round_up(50, 64)", 64},
      {"round_up(64, 64) - 50", 14},
      {"round_up(0, 64)", 0},
      {"round_up(a * 2, b.c)", 15},
      {" 12 ", 12},
      {"most + 0", kMost},
      {"most % -1", 0},
  };
  for (const auto& [text, value] : cases) {
    EXPECT_THAT(Evaluate(text), IsOkAndHolds(value)) << text;
  }
}

TEST(Formula, AndAndOrEvaluateOnlyTheNeededOperands) {
  EXPECT_THAT(Evaluate("0 and missing"), IsOkAndHolds(0));
  EXPECT_THAT(Evaluate("1 or 1 / 0"), IsOkAndHolds(1));
  EXPECT_THAT(Evaluate("1 and missing"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("missing")));
}

TEST(Formula, RefusesFormulasWithoutAValue) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"7 / 2", "not a multiple"},
      {"7 / 0", "division by zero"},
      {"7 // 0", "division by zero"},
      {"7 % 0", "division by zero"},
      {"round_up(7, 0)", "division by zero"},
      {"round_up(7, -2)", "positive multiple"},
      {"round_up(most, 2)", "exceeds 64 bits"},
      {"most + 1", "exceeds 64 bits"},
      {"most * 2", "exceeds 64 bits"},
      {"-most - 2", "exceeds 64 bits"},
      {"(-most - 1) // -1", "exceeds 64 bits"},
      {"-(-most - 1)", "exceeds 64 bits"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(Evaluate(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr(message)))
        << text;
  }
}

TEST(Formula, RefusesInvalidFormulas) {
  const std::vector<std::string> cases = {"",
                                          "1 +",
                                          "* 2",
                                          "(1",
                                          "1)",
                                          "1 2",
                                          "a b",
                                          "1.5",
                                          "2x",
                                          "a = 1",
                                          "1 < 2 < 3",
                                          "f(1)",
                                          "round_up(1)",
                                          "round_up(1, 2, 3)",
                                          "not",
                                          "and",
                                          "'a'",
                                          "a[0]",
                                          "__import__('os')",
                                          "99999999999999999999",
                                          "1 +\n"};
  for (const std::string& text : cases) {
    EXPECT_THAT(
        Formula::Parse(text),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the formula")))
        << text;
  }
}

TEST(Formula, RefusesLargeAndDeepFormulas) {
  EXPECT_OK(Formula::Parse(std::string(kMaxFormulaDepth, '(') + "1" +
                           std::string(kMaxFormulaDepth, ')')));
  for (const std::string& text :
       {std::string(kMaxFormulaDepth + 1, '(') + "1" +
            std::string(kMaxFormulaDepth + 1, ')'),
        std::string(kMaxFormulaDepth + 1, '-') + "1"}) {
    EXPECT_THAT(Formula::Parse(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("nested deeper than 32")));
  }
  std::string sum = "1";
  for (size_t i = 0; i < kMaxFormulaNodes; ++i) sum += "+1";
  EXPECT_THAT(Formula::Parse(sum), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("more than 128")));
  EXPECT_THAT(
      Formula::Parse(std::string(kMaxMappingTextBytes + 1, ' ')),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("exceeds 4096")));
}

TEST(Formula, ListsItsNames) {
  ASSERT_OK_AND_ASSIGN(const Formula formula,
                       Formula::Parse("a / b.c + round_up(a, 2)"));
  EXPECT_THAT(formula.Names(), ElementsAre("a", "b.c", "a"));
  EXPECT_EQ(formula.text(), "a / b.c + round_up(a, 2)");
}

}  // namespace
}  // namespace dcp
