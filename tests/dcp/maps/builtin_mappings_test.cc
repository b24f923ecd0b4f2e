// Every built-in mapping, in both directions, against what the programs
// themselves made of tiny models (tests/golden/mappings).
#include "dcp/maps/builtin_mappings.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/mapping/mapped_tensors.h"
#include "dcp/mapping/mapping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/mapping/apply_pieces.h"
#include "tests/dcp/mapping/golden_models.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::ApplyPieces;
using ::dcp::testing::ArrayTensor;
using ::dcp::testing::GoldenConfig;
using ::dcp::testing::GoldenLines;
using ::dcp::testing::GoldenTensors;
using ::dcp::testing::LinesOf;
using ::dcp::testing::StatusIs;
using ::dcp::testing::WithoutBytes;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// A conversion of the model that transformers saved, and back.
struct Pair {
  std::string mapping;
  std::string model;
  std::string side;
  // What the other program made, as golden files name it. Empty: no program
  // judged this, so only the way back counts.
  std::string judge;
  MappingSettings settings = {};
  // The file of transformers: "hf" or the state of an optimizer.
  std::string file = "hf";
};

void PrintTo(const Pair& pair, std::ostream* out) {
  *out << pair.mapping << " " << pair.model << " " << pair.side << " "
       << pair.judge;
}

std::vector<ArrayTensor> Convert(const Pair& pair, const std::string& from,
                                 const std::string& to,
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

class BuiltinPair : public ::testing::TestWithParam<Pair> {};

TEST_P(BuiltinPair, EqualsWhatTheProgramMadeAndComesBack) {
  const Pair& pair = GetParam();
  const std::vector<ArrayTensor> source = GoldenTensors(pair.model, pair.file);
  const std::vector<ArrayTensor> made = Convert(pair, "hf", pair.side, source);
  if (!pair.judge.empty()) {
    EXPECT_THAT(LinesOf(made),
                ElementsAreArray(GoldenLines(pair.model, pair.judge)));
  }
  EXPECT_THAT(LinesOf(Convert(pair, pair.side, "hf", made)),
              ElementsAreArray(LinesOf(source)));
}

const std::vector<Pair>& Pairs() {
  static const auto* const pairs = new std::vector<Pair>{
      {"llama", "llama", "torchtitan", "torchtitan"},
      {"llama", "llama_tied", "torchtitan", "torchtitan"},
      {"llama", "llama", "megatron", "megatron_te"},
      {"llama", "llama_tied", "megatron", "megatron_te"},
      {"llama", "llama", "megatron_local", "megatron"},
      {"llama", "llama_tied", "megatron_local", "megatron"},
      {"llama", "llama", "megatron_stacked", "megatron_dist"},
      {"llama",
       "llama",
       "megatron_stacked",
       "megatron_dist_padded",
       {{"vocab_multiple", 64}}},
      {"llama", "llama_tied", "megatron_stacked", "megatron_dist"},
      {"llama", "llama", "meta", "meta"},
      {"llama", "llama", "meta_mp", "meta_mp", {{"tp", 2}}},
      {"llama", "llama", "torchtitan", "torchtitan_optim", {}, "hf_optim"},
      {"llama",
       "llama",
       "megatron_stacked",
       "",
       {{"vocab_multiple", 64}},
       "hf_optim"},
      {"qwen", "qwen2", "megatron", "megatron_te"},
      {"qwen", "qwen2", "megatron_local", "megatron"},
      {"qwen", "qwen2", "megatron_stacked", "megatron_dist"},
      {"qwen", "qwen3", "torchtitan", "torchtitan"},
      {"qwen", "qwen3", "megatron", "megatron_te"},
      {"qwen", "qwen3", "megatron_local", "megatron"},
      {"qwen", "qwen3", "megatron_stacked", "megatron_dist"},
      {"qwen3-moe", "qwen3_moe", "hf5", "hf5"},
      {"qwen3-moe", "qwen3_moe", "torchtitan", "torchtitan"},
      {"qwen3-moe", "qwen3_moe", "megatron", "megatron_te"},
      {"qwen3-moe", "qwen3_moe", "megatron_local", "megatron"},
      {"qwen3-moe", "qwen3_moe", "megatron_stacked_local", "megatron_dist"},
      {"qwen3-moe", "qwen3_moe", "megatron_stacked", ""},
      {"qwen3-moe", "qwen3_moe", "megatron_dist", ""},
      {"mixtral", "mixtral", "hf5", "hf5"},
      {"mixtral", "mixtral", "megatron", "megatron"},
      {"mixtral", "mixtral", "megatron_local", ""},
      {"mixtral", "mixtral", "megatron_stacked", "", {{"vocab_multiple", 64}}},
      {"deepseek-v3", "deepseek_v3", "hf5", "hf5"},
      {"deepseek-v3", "deepseek_v3", "torchtitan", "torchtitan"},
      {"deepseek-v3", "deepseek_v3_mtp", "torchtitan", "torchtitan"},
      {"deepseek-v3", "deepseek_v3", "megatron", "megatron_te"},
      {"deepseek-v3", "deepseek_v3", "megatron_local", "megatron"},
      {"deepseek-v3", "deepseek_v3", "megatron_dist_local", "megatron_dist"},
      {"deepseek-v3", "deepseek_v3", "megatron_dist", ""},
      {"gpt2", "gpt2", "plain", "plain"},
      {"gpt2", "gpt2", "megatron", "", {{"vocab_multiple", 64}}},
      {"gpt2", "gpt2", "megatron_stacked", ""},
      {"gpt-oss", "gpt_oss", "torchtitan", "torchtitan"},
      {"gpt-oss", "gpt_oss", "megatron", "megatron_te"},
      {"gpt-oss", "gpt_oss", "megatron_local", "megatron"},
      {"gpt-oss", "gpt_oss", "megatron_stacked_local", "megatron_dist"},
      {"gpt-oss", "gpt_oss", "megatron_stacked", ""},
  };
  return *pairs;
}

INSTANTIATE_TEST_SUITE_P(All, BuiltinPair, ::testing::ValuesIn(Pairs()));

TEST(BuiltinMappings, EverySideOfEveryFamilyIsTested) {
  for (const std::string& family : BuiltinMappings()) {
    ASSERT_OK_AND_ASSIGN(const Mapping mapping, BuiltinMapping(family));
    EXPECT_EQ(mapping.name(), family);
    EXPECT_EQ(mapping.sides()[0], "hf");
    for (const std::string& side : mapping.sides()) {
      const bool is_tested =
          side == "hf" ||
          std::any_of(Pairs().begin(), Pairs().end(), [&](const Pair& pair) {
            return pair.mapping == family && pair.side == side;
          });
      EXPECT_TRUE(is_tested) << family << " " << side;
    }
  }
}

TEST(BuiltinMappings, FamilyThatIsNotThere) {
  EXPECT_THAT(BuiltinMapping("lama"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("there are deepseek-v3, gpt-oss, gpt2")));
}

}  // namespace
}  // namespace dcp
