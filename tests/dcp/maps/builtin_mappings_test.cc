// SPDX-License-Identifier: Apache-2.0
// Every built-in mapping, in both directions, compared with the programs' own
// results for tiny models (tests/golden/mappings).
#include "dcp/maps/builtin_mappings.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "dcp/mapping/application/mapping.h"
#include "dcp/mapping/equations/mapped_tensors.h"
#include "dcp/mapping/trial/round_trip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/mapping/apply_pieces.h"
#include "tests/dcp/mapping/golden_models.h"
#include "tests/dcp/maps/golden_pairs.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::ApplyPieces;
using ::dcp::testing::ArrayTensor;
using ::dcp::testing::GoldenConfig;
using ::dcp::testing::GoldenLines;
using ::dcp::testing::GoldenPair;
using ::dcp::testing::GoldenPairs;
using ::dcp::testing::GoldenTensors;
using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::LinesOf;
using ::dcp::testing::StatusIs;
using ::dcp::testing::WithoutBytes;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAreArray;

std::vector<ArrayTensor> Convert(const GoldenPair& pair,
                                 const std::string& from, const std::string& to,
                                 const std::vector<ArrayTensor>& tensors) {
  const absl::StatusOr<Mapping> mapping = BuiltinMapping(pair.mapping);
  EXPECT_OK(mapping);
  if (!mapping.ok()) return {};
  const absl::StatusOr<MappedTensors> mapped =
      mapping->Map(WithoutBytes(tensors), {.from = from,
                                           .to = to,
                                           .config = GoldenConfig(pair.model),
                                           .settings = pair.settings});
  EXPECT_OK(mapped) << from << " to " << to;
  if (!mapped.ok()) return {};
  EXPECT_TRUE(testing::PaddingsAreZero(*mapped, tensors));
  absl::StatusOr<std::vector<ArrayTensor>> made = ApplyPieces(*mapped, tensors);
  EXPECT_OK(made) << from << " to " << to;
  return made.ok() ? *std::move(made) : std::vector<ArrayTensor>();
}

class BuiltinPair : public ::testing::TestWithParam<GoldenPair> {};

TEST_P(BuiltinPair, EqualsTheProgramsResultAndComesBack) {
  const GoldenPair& pair = GetParam();
  const std::vector<ArrayTensor> source = GoldenTensors(pair.model, pair.file);
  const std::vector<ArrayTensor> made = Convert(pair, "hf", pair.side, source);
  if (!pair.judge.empty()) {
    EXPECT_THAT(LinesOf(made),
                ElementsAreArray(GoldenLines(pair.model, pair.judge)));
  }
  EXPECT_THAT(LinesOf(Convert(pair, pair.side, "hf", made)),
              ElementsAreArray(LinesOf(source)));
}

INSTANTIATE_TEST_SUITE_P(All, BuiltinPair, ::testing::ValuesIn(GoldenPairs()));

// Between two sides that are not hf: as in two steps.
TEST_P(BuiltinPair, BecomesEveryOtherSide) {
  const GoldenPair& pair = GetParam();
  const auto other = std::find_if(
      GoldenPairs().begin(), GoldenPairs().end(), [&](const GoldenPair& next) {
        return next.model == pair.model && next.file == pair.file &&
               next.settings == pair.settings && next.side != pair.side &&
               next.side > pair.side;
      });
  if (other == GoldenPairs().end()) return;
  const std::vector<ArrayTensor> source = GoldenTensors(pair.model, pair.file);
  const std::vector<ArrayTensor> made = Convert(pair, "hf", pair.side, source);
  EXPECT_THAT(
      LinesOf(Convert(pair, pair.side, other->side, made)),
      ElementsAreArray(LinesOf(Convert(pair, "hf", other->side, source))))
      << other->side;
}

TEST_P(BuiltinPair, LosesNothingByPiecesAlone) {
  const GoldenPair& pair = GetParam();
  ASSERT_OK_AND_ASSIGN(const Mapping mapping, BuiltinMapping(pair.mapping));
  const std::vector<ArrayTensor> source = GoldenTensors(pair.model, pair.file);
  const std::vector<ArrayTensor> made = Convert(pair, "hf", pair.side, source);
  MapOptions options = {.from = "hf",
                        .to = pair.side,
                        .config = GoldenConfig(pair.model),
                        .settings = pair.settings};
  EXPECT_OK(CheckRoundTrip(mapping, WithoutBytes(source), options));
  std::swap(options.from, options.to);
  EXPECT_OK(CheckRoundTrip(mapping, WithoutBytes(made), options));
}

TEST(BuiltinMappings, EverySideOfEveryFamilyIsTested) {
  for (const std::string& family : BuiltinMappings()) {
    ASSERT_OK_AND_ASSIGN(const Mapping mapping, BuiltinMapping(family));
    EXPECT_EQ(mapping.name(), family);
    EXPECT_EQ(mapping.sides()[0], "hf");
    for (const std::string& side : mapping.sides()) {
      const bool is_tested =
          side == "hf" ||
          std::any_of(GoldenPairs().begin(), GoldenPairs().end(),
                      [&](const GoldenPair& pair) {
                        return pair.mapping == family && pair.side == side;
                      });
      EXPECT_TRUE(is_tested) << family << " " << side;
    }
  }
}

// "yes" if a program made the same from a model, "back" if only the way there
// and back is tested, and empty if the family has no such side.
std::string ExpectedTests(const std::string& family, const std::string& side) {
  if (side == "hf") return "yes";
  std::string tests;
  for (const GoldenPair& pair : GoldenPairs()) {
    if (pair.mapping != family || pair.side != side) continue;
    if (!pair.judge.empty()) return "yes";
    tests = "back";
  }
  return tests;
}

// The cells in README.md's lines that begin as this table's do.
std::vector<std::vector<std::string>> ReadmeTable() {
  std::ifstream readme("README.md");
  std::vector<std::vector<std::string>> rows;
  bool is_inside = false;
  for (std::string line; std::getline(readme, line);) {
    is_inside = absl::StartsWith(line, is_inside ? "|" : "| side |");
    if (!is_inside) continue;
    std::vector<std::string> cells = absl::StrSplit(line, '|');
    for (std::string& cell : cells) {
      absl::StripAsciiWhitespace(&cell);
      absl::StrReplaceAll({{"`", ""}}, &cell);
    }
    rows.emplace_back(cells.begin() + 1, cells.end() - 1);
  }
  return rows;
}

TEST(BuiltinMappings, TheReadmeTableListsTheTests) {
  const std::vector<std::vector<std::string>> rows = ReadmeTable();
  ASSERT_GT(rows.size(), 2u) << "README.md has no table of sides";
  const std::vector<std::string> families(rows[0].begin() + 1, rows[0].end());
  EXPECT_THAT(families, UnorderedElementsAreArray(BuiltinMappings()));
  std::set<std::string> sides;
  for (size_t row = 2; row < rows.size(); ++row) {
    const std::string& side = rows[row][0];
    sides.insert(side);
    ASSERT_EQ(rows[row].size(), families.size() + 1) << side;
    for (size_t i = 0; i < families.size(); ++i) {
      EXPECT_EQ(rows[row][i + 1], ExpectedTests(families[i], side))
          << side << " of " << families[i];
    }
  }
  for (const std::string& family : BuiltinMappings()) {
    ASSERT_OK_AND_ASSIGN(const Mapping mapping, BuiltinMapping(family));
    for (const std::string& side : mapping.sides()) {
      EXPECT_TRUE(sides.contains(side)) << side << " of " << family;
    }
  }
}

TEST(BuiltinMappings, FamiliesFollowTheModelType) {
  for (const GoldenPair& pair : GoldenPairs()) {
    EXPECT_THAT(FamiliesFor(GoldenConfig(pair.model)),
                IsOkAndHolds(ElementsAre(pair.mapping)));
  }
  // A text model within a model for text and pictures.
  EXPECT_THAT(
      FamiliesFor(R"({"model_type": "any", "vision_config": {"model_type":
                      "gpt2"}, "text_config": {"model_type": "qwen2"}})"),
      IsOkAndHolds(ElementsAre("qwen")));
  // Programs with code of their own give known classes other types.
  for (const std::string& config :
       {R"({"model_type": "kimi_k2"})",
        R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "own"})",
        R"({"model_type": "kimi_k25", "text_config": {"model_type":
            "kimi_k2"}})"}) {
    EXPECT_THAT(FamiliesFor(config), IsOkAndHolds(ElementsAre("deepseek-v3")));
  }
  EXPECT_THAT(FamiliesFor(R"({"architectures": ["GPT2LMHeadModel"]})"),
              IsOkAndHolds(ElementsAre("gpt2")));
  EXPECT_THAT(FamiliesFor(R"({"architectures": ["Qwen3MoeForCausalLM"]})"),
              IsOkAndHolds(ElementsAre("qwen3-moe")));
  EXPECT_THAT(FamiliesFor(""), IsOkAndHolds(SizeIs(7)));
  EXPECT_THAT(FamiliesFor(R"({"model_type": null})"), IsOkAndHolds(SizeIs(7)));
  EXPECT_THAT(FamiliesFor(R"({"model_type": "bert"})"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("is bert, and no family of mappings is for "
                                 "it; the families are for deepseek_v3, ")));
  EXPECT_THAT(FamiliesFor("{"), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("config.json: ")));
}

TEST(BuiltinMappings, RefusesAnUnknownFamily) {
  EXPECT_THAT(BuiltinMapping("lama"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("there are deepseek-v3, gpt-oss, gpt2")));
}

}  // namespace
}  // namespace dcp
