// SPDX-License-Identifier: Apache-2.0

#include "config/parallel_plan.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::ActivationLayout;
using ::dcp::ParallelPlan;
using ::dcp::ParallelStyle;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Kind = ::dcp::ParallelStyle::Kind;

// The problems in a plan's text, one by one.
std::vector<std::string> ProblemsOf(absl::string_view text) {
  const absl::StatusOr<ParallelPlan> plan =
      parallel_plan_text("plan.yaml", text);
  if (plan.ok()) return {};
  return absl::StrSplit(plan.status().message(), '\n');
}

TEST(ParallelPlanText, WordsAndMapsKeepTheOrderOfTheFile) {
  ASSERT_OK_AND_ASSIGN(const ParallelPlan plan,
                       parallel_plan_text("plan.yaml", R"(# Llama
tok_embeddings: embedding_rowwise
layers.*.attention.w[qkv]: colwise
layers.*.mlp.{gate,up}_proj: colwise
layers.*.attention.wo:
  style: rowwise
  input_layouts: Shard(-1)
  output_layouts: shard(1)
  use_local_output: false
"": {style: sequence_parallel, sequence_dim: 2}
)"));
  ASSERT_EQ(plan.entries().size(), 5);
  EXPECT_EQ(plan.entries()[1].pattern, "layers.*.attention.w[qkv]");
  EXPECT_EQ(plan.entries()[1].line, 3);
  EXPECT_TRUE(plan.entries()[0].style ==
              (ParallelStyle{.kind = Kind::kRowwise, .embedding = true}));
  constexpr auto kShard = ActivationLayout::Kind::kShard;
  EXPECT_TRUE(plan.entries()[3].style ==
              (ParallelStyle{
                  .kind = Kind::kRowwise,
                  .input_layouts = ActivationLayout{.kind = kShard, .dim = -1},
                  .output_layouts = ActivationLayout{.kind = kShard, .dim = 1},
                  .use_local_output = false}));
  EXPECT_EQ(plan.entries()[4].pattern, "");
  EXPECT_TRUE(plan.entries()[4].style ==
              (ParallelStyle{.kind = Kind::kSequence, .sequence_dim = 2}));
}

TEST(ParallelPlanText, JsonMeansTheSame) {
  ASSERT_OK_AND_ASSIGN(const ParallelPlan plan,
                       parallel_plan_text("plan.json", R"({
  "layers.*.self_attn.q_proj": "colwise",
  "lm_head": {"style": "colwise_rep", "embedding": false}
})"));
  ASSERT_EQ(plan.entries().size(), 2);
  EXPECT_EQ(plan.entries()[1].line, 3);
  EXPECT_TRUE(plan.entries()[1].style ==
              (ParallelStyle{.kind = Kind::kColwise,
                             .embedding = false,
                             .output_layouts = ActivationLayout{}}));
}

TEST(ParallelPlanText, EveryProblemHasItsLineAndPattern) {
  EXPECT_THAT(
      ProblemsOf("a: colwse\nb: 3\nc: {output_layouts: shard(1)}\n"
                 "d: {style: local_colwise}\n\"\": sequence\n"),
      ElementsAre(
          AllOf(HasSubstr("plan.yaml:1: a is 'colwse', not colwise, "),
                HasSubstr("did you mean colwise?")),
          HasSubstr("plan.yaml:2: b is neither a style"),
          HasSubstr("plan.yaml:3: c has no style; write {style: colwise}"),
          HasSubstr("plan.yaml:4: d.style is 'local_colwise', a word of "
                    "transformers that has no meaning here: write colwise"),
          HasSubstr("plan.yaml:5: \"\" is 'sequence', not colwise")));
}

TEST(ParallelPlanText, ChecksOptionsAgainstTheStyle) {
  EXPECT_THAT(
      ProblemsOf("a: {style: colwise, output_layout: replicate}\n"
                 "b: {style: colwise, sequence_dim: 1}\n"
                 "c: {style: sequence_parallel, input_layouts: replicate}\n"
                 "d: {style: colwise_rep, output_layouts: shard(1)}\n"
                 "e: {style: rowwise, output_layouts: partial}\n"
                 "f: {style: sequence_parallel, sequence_dim: 64}\n"
                 "g: {style: replicate, use_local_output: true}\n"),
      ElementsAre(
          AllOf(HasSubstr("plan.yaml:1: a.output_layout"),
                HasSubstr("did you mean output_layouts?")),
          HasSubstr("plan.yaml:2: b.sequence_dim is not an option of colwise"),
          HasSubstr("plan.yaml:3: c.input_layouts is not an option of "
                    "sequence_parallel"),
          HasSubstr("plan.yaml:4: d.output_layouts is given, but the word"),
          HasSubstr("plan.yaml:5: e.output_layouts is 'partial', not "
                    "replicate or shard(dim)"),
          HasSubstr("plan.yaml:6: f.sequence_dim is 64, not a whole number "
                    "from 0 to 63"),
          HasSubstr("plan.yaml:7: g.use_local_output is not an option of "
                    "replicate")));
}

TEST(ParallelPlanText, RefusesBadPatternsWithTheLine) {
  EXPECT_THAT(
      ProblemsOf("x: colwise\na..b: colwise\nc.weight: colwise\n"),
      ElementsAre(
          AllOf(HasSubstr("plan.yaml:2: "), HasSubstr("without a character")),
          AllOf(HasSubstr("plan.yaml:3: "), HasSubstr("leave .weight out"))));
  EXPECT_THAT(ProblemsOf("a: colwise\na: rowwise\n"),
              ElementsAre(HasSubstr("plan.yaml:2: a is given twice")));
}

TEST(ParallelPlanText, RefusesTextsThatAreNotMaps) {
  EXPECT_THAT(ProblemsOf("- colwise\n"),
              ElementsAre(HasSubstr("is not a map")));
  EXPECT_THAT(ProblemsOf("a: [unclosed\n"), Not(IsEmpty()));
  ASSERT_OK_AND_ASSIGN(const ParallelPlan empty,
                       parallel_plan_text("plan.yaml", ""));
  EXPECT_THAT(empty.entries(), IsEmpty());
}

TEST(LoadParallelPlan, ReportsMissingFilesAsNotFound) {
  EXPECT_THAT(load_parallel_plan("no-such-plan.yaml").status(),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace fsdp
