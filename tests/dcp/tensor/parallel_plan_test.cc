// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/parallel_plan.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Kind = ParallelStyle::Kind;

using ::dcp::testing::kInvalid;

TEST(ParallelStyle, EachWordIsAStyleWithItsLayouts) {
  const std::optional<ActivationLayout> replicate = ActivationLayout{};
  const std::vector<std::pair<const char*, ParallelStyle>> words = {
      {"colwise", {.kind = Kind::kColwise}},
      {"rowwise", {.kind = Kind::kRowwise}},
      {"colwise_rep", {.kind = Kind::kColwise, .output_layouts = replicate}},
      {"colwise_gather_output",
       {.kind = Kind::kColwise, .output_layouts = replicate}},
      {"rowwise_rep", {.kind = Kind::kRowwise, .input_layouts = replicate}},
      {"rowwise_split_input",
       {.kind = Kind::kRowwise, .input_layouts = replicate}},
      {"embedding_colwise", {.kind = Kind::kColwise, .embedding = true}},
      {"embedding_rowwise", {.kind = Kind::kRowwise, .embedding = true}},
      {"sequence_parallel", {.kind = Kind::kSequence}},
      {"replicate", {.kind = Kind::kReplicate}},
      {"replicated_with_grad_allreduce", {.kind = Kind::kReplicate}}};
  for (const auto& [word, style] : words) {
    ASSERT_OK_AND_ASSIGN(const ParallelStyle parsed, ParseParallelStyle(word));
    EXPECT_TRUE(parsed == style) << word;
  }
  for (const Kind kind :
       {Kind::kColwise, Kind::kRowwise, Kind::kSequence, Kind::kReplicate}) {
    ASSERT_OK_AND_ASSIGN(const ParallelStyle parsed,
                         ParseParallelStyle(ParallelKindName(kind)));
    EXPECT_EQ(parsed.kind, kind);
  }
}

TEST(ParallelStyle, AnUnknownWordGetsTheAllowedOnesAndTheNearest) {
  EXPECT_THAT(ParseParallelStyle("colwse").status(),
              StatusIs(kInvalid, AllOf(HasSubstr("is 'colwse', not colwise, "),
                                       HasSubstr("replicate or "),
                                       HasSubstr("did you mean colwise?"))));
  EXPECT_THAT(ParseParallelStyle("").status(), StatusIs(kInvalid));
}

TEST(ParallelStyle, RefusesTransformersWordsWithoutMeaning) {
  const std::vector<std::pair<const char*, const char*>> words = {
      {"local_colwise", "write colwise"},
      {"local_rowwise", "write rowwise"},
      {"local", "leave the entry out"},
      {"gather", "leave the entry out"},
      {"packed_rowwise", "packed weight"},
      {"moe_tp_experts", "experts"},
      {"ep_router", "experts"},
      {"mla_kv_a_proj", "replicate"}};
  for (const auto& [word, hint] : words) {
    EXPECT_THAT(
        ParseParallelStyle(word).status(),
        StatusIs(kInvalid,
                 AllOf(HasSubstr(absl::StrCat("'", word, "'")),
                       HasSubstr("has no meaning here"), HasSubstr(hint))));
  }
}

TEST(ActivationLayout, IsReplicateOrAShardCountedFromEitherEnd) {
  ASSERT_OK_AND_ASSIGN(ActivationLayout layout,
                       ParseActivationLayout("Replicate"));
  EXPECT_EQ(layout, ActivationLayout{});
  ASSERT_OK_AND_ASSIGN(layout, ParseActivationLayout("Shard(-1)"));
  EXPECT_EQ(layout, (ActivationLayout{.kind = ActivationLayout::Kind::kShard,
                                      .dim = -1}));
  for (const char* text : {"", "shard", "shard()", "shard(64)", "shard(-65)",
                           "shard(1", "shard(1, 2)", "partial"}) {
    EXPECT_THAT(ParseActivationLayout(text).status(),
                StatusIs(kInvalid, HasSubstr("not replicate or shard(dim)")))
        << text;
  }
}

TEST(ExpandBraces, GivesEveryCombinationInOrder) {
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> patterns,
                       ExpandBraces("{a,b}.w{1,2}"));
  EXPECT_THAT(patterns, ElementsAre("a.w1", "a.w2", "b.w1", "b.w2"));
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> across_levels,
                       ExpandBraces("{attn.wo,mlp.w2}"));
  EXPECT_THAT(across_levels, ElementsAre("attn.wo", "mlp.w2"));
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> root, ExpandBraces(""));
  EXPECT_THAT(root, ElementsAre(""));
}

TEST(ExpandBraces, RefusesMalformedAndLargePatterns) {
  for (const char* pattern : {"a{b", "a}b", "{a,{b}}", "}{"}) {
    EXPECT_THAT(ExpandBraces(pattern).status(),
                StatusIs(kInvalid, HasSubstr("braces")))
        << pattern;
  }
  for (const char* pattern : {".", "a..b", ".a", "a.", "a.{b,}"}) {
    EXPECT_THAT(ExpandBraces(pattern).status(),
                StatusIs(kInvalid, HasSubstr("without a character")))
        << pattern;
  }
  std::string many;
  for (int i = 0; i < 14; ++i) absl::StrAppend(&many, "{a,b}");
  EXPECT_THAT(ExpandBraces(many).status(),
              StatusIs(kInvalid, HasSubstr("more than 10000 patterns")));
  EXPECT_THAT(ExpandBraces(std::string(1025, 'a')).status(),
              StatusIs(kInvalid, HasSubstr("more than 1024 bytes")));
}

TEST(MatchesModule, MatchesTokenByToken) {
  EXPECT_TRUE(
      MatchesModule("layers.*.attention.w[qkv]", "layers.11.attention.wk"));
  EXPECT_FALSE(
      MatchesModule("layers.*.attention.w[qkv]", "layers.11.attention.wo"));
  // A star matches only one level.
  EXPECT_FALSE(MatchesModule("layers.*.wq", "layers.1.attention.wq"));
  EXPECT_FALSE(MatchesModule("layers.*", "layers"));
  EXPECT_TRUE(MatchesModule("layers.?", "layers.7"));
  EXPECT_FALSE(MatchesModule("layers.?", "layers.17"));
  EXPECT_TRUE(MatchesModule("", ""));
  EXPECT_FALSE(MatchesModule("", "norm"));
  EXPECT_FALSE(MatchesModule("*", ""));
  EXPECT_FALSE(MatchesModule("*", "a.b"));
}

TEST(IsEmbeddingName, UsesTheModulesLastName) {
  for (const char* name : {"tok_embeddings", "model.embed_tokens", "embed_in",
                           "transformer.wte", "wpe", "tok_emb", "Embedding"}) {
    EXPECT_TRUE(IsEmbeddingName(name)) << name;
  }
  for (const char* name : {"", "embed_out", "embed_proj", "embeddings.proj",
                           "output", "member", "lm_head"}) {
    EXPECT_FALSE(IsEmbeddingName(name)) << name;
  }
}

TEST(ParallelPlan, FindsTheEntryOfAModule) {
  ParallelPlan plan;
  ASSERT_OK(plan.Add({.pattern = "layers.*.mlp.{gate,up}_proj",
                      .style = {.kind = Kind::kColwise},
                      .line = 3}));
  ASSERT_OK(plan.Add({.pattern = "", .style = {.kind = Kind::kSequence}}));
  EXPECT_THAT(plan.entries(), SizeIs(2));
  ASSERT_OK_AND_ASSIGN(const ParallelPlan::Entry* entry,
                       plan.Find("layers.2.mlp.up_proj"));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->style.kind, Kind::kColwise);
  EXPECT_EQ(entry->line, 3);
  ASSERT_OK_AND_ASSIGN(entry, plan.Find("layers.2.mlp.down_proj"));
  EXPECT_EQ(entry, nullptr);
  ASSERT_OK_AND_ASSIGN(entry, plan.Find(""));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->style.kind, Kind::kSequence);
}

TEST(ParallelPlan, AModuleWithTwoStylesIsAnError) {
  ParallelPlan plan;
  ASSERT_OK(plan.Add({.pattern = "a.*", .style = {.kind = Kind::kColwise}}));
  ASSERT_OK(plan.Add({.pattern = "*.w1", .style = {.kind = Kind::kColwise}}));
  ASSERT_OK(plan.Add({.pattern = "*.w2", .style = {.kind = Kind::kRowwise}}));
  ASSERT_OK_AND_ASSIGN(const ParallelPlan::Entry* same, plan.Find("a.w1"));
  EXPECT_EQ(same->pattern, "a.*");
  EXPECT_THAT(plan.Find("a.w2").status(),
              StatusIs(kInvalid, AllOf(HasSubstr("a.w2"),
                                       HasSubstr("'a.*', which is "
                                                 "colwise"),
                                       HasSubstr("'*.w2', which is rowwise"))));
}

TEST(ParallelPlan, RefusesParameterPatternsAndTooManyEntries) {
  ParallelPlan plan;
  EXPECT_THAT(plan.Add({.pattern = "layers.*.wq.weight"}),
              StatusIs(kInvalid, HasSubstr("leave .weight out")));
  EXPECT_THAT(plan.Add({.pattern = "a{b"}), StatusIs(kInvalid));
  EXPECT_THAT(plan.entries(), SizeIs(0));
  ASSERT_OK_AND_ASSIGN(const ParallelPlan::Entry* none,
                       plan.Find("layers.1.wq.weight"));
  EXPECT_EQ(none, nullptr);
  for (size_t i = 0; i < kMaxPlanEntries; ++i) {
    ASSERT_OK(plan.Add({.pattern = absl::StrCat("a", i)}));
  }
  EXPECT_THAT(plan.Add({.pattern = "b"}),
              StatusIs(kInvalid, HasSubstr("at most 4096 entries")));
}

// The placement in words, or the error's text.
std::string PlacementText(ParallelStyle style, absl::string_view module,
                          absl::string_view name, size_t num_dims) {
  const absl::StatusOr<Placement> placement =
      ParameterPlacement(style, module, name, num_dims);
  if (!placement.ok()) return std::string(placement.status().message());
  return ToString({&*placement, 1});
}

// The table in PyTorch's styles.
TEST(ParameterPlacement, EqualsPyTorchsStyles) {
  const ParallelStyle colwise = {.kind = Kind::kColwise};
  const ParallelStyle rowwise = {.kind = Kind::kRowwise};
  EXPECT_EQ(PlacementText(colwise, "layers.0.wq", "weight", 2), "S(0)");
  EXPECT_EQ(PlacementText(colwise, "layers.0.wq", "bias", 1), "S(0)");
  EXPECT_EQ(PlacementText(rowwise, "layers.0.wo", "weight", 2), "S(1)");
  EXPECT_EQ(PlacementText(rowwise, "layers.0.wo", "bias", 1), "R");
  EXPECT_EQ(PlacementText(colwise, "tok_embeddings", "weight", 2), "S(1)");
  EXPECT_EQ(PlacementText(rowwise, "tok_embeddings", "weight", 2), "S(0)");
  for (const Kind kind : {Kind::kSequence, Kind::kReplicate}) {
    EXPECT_EQ(PlacementText({.kind = kind}, "norm", "weight", 1), "R");
  }
  EXPECT_EQ(PlacementText(colwise, "layers.0.wq", "scale", 0), "R");
}

TEST(ParameterPlacement, TheOptionEmbeddingOverridesTheName) {
  const ParallelStyle linear = {.kind = Kind::kRowwise, .embedding = false};
  EXPECT_EQ(PlacementText(linear, "patch_embed", "weight", 2), "S(1)");
  const ParallelStyle embedding = {.kind = Kind::kRowwise, .embedding = true};
  EXPECT_EQ(PlacementText(embedding, "vocabulary", "weight", 2), "S(0)");
}

TEST(ParameterPlacement, RefusesOtherModulesWeights) {
  const std::string error =
      PlacementText({.kind = Kind::kColwise}, "norm", "weight", 1);
  EXPECT_THAT(error, AllOf(HasSubstr("norm.weight has 1 dimensions"),
                           HasSubstr("colwise"), Not(HasSubstr("rowwise"))));
}

}  // namespace
}  // namespace dcp
