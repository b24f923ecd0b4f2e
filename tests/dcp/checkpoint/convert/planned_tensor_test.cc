// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/planned_tensor.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::testing::HasSubstr;
using Kind = ParallelStyle::Kind;

ParallelPlan PlannedLlamaPlan() {
  ParallelPlan plan;
  EXPECT_OK(plan.Add(
      {.pattern = "tok_embeddings", .style = {.kind = Kind::kRowwise}}));
  EXPECT_OK(plan.Add(
      {.pattern = "layers.*.w[qkv]", .style = {.kind = Kind::kColwise}}));
  EXPECT_OK(
      plan.Add({.pattern = "layers.*.wo", .style = {.kind = Kind::kRowwise}}));
  EXPECT_OK(plan.Add({.pattern = "norm", .style = {.kind = Kind::kSequence}}));
  EXPECT_OK(plan.Add({.pattern = "output", .style = {.kind = Kind::kColwise}}));
  return plan;
}

// "layers.*.wo S(1)"; "-" for a name outside the plan; or the error's text.
std::string Planned(absl::string_view name, size_t num_dims) {
  const ParallelPlan plan = PlannedLlamaPlan();
  const absl::StatusOr<PlannedTensor> planned =
      FindPlanned(plan, name, num_dims);
  if (!planned.ok()) return std::string(planned.status().message());
  if (planned->entry == nullptr) return "-";
  return absl::StrCat(planned->entry->pattern, " ",
                      ToString({&planned->placement, 1}));
}

TEST(FindPlanned, KnowsParametersBelowTheirRoots) {
  EXPECT_EQ(Planned("layers.3.wq.weight", 2), "layers.*.w[qkv] S(0)");
  EXPECT_EQ(Planned("model.layers.3.wq.weight", 2), "layers.*.w[qkv] S(0)");
  EXPECT_EQ(Planned("model.model.layers.3.wo.weight", 2), "layers.*.wo S(1)");
  EXPECT_EQ(Planned("state.model.module.layers.3.wo.bias", 1), "layers.*.wo R");
  EXPECT_EQ(Planned("model.tok_embeddings.weight", 2), "tok_embeddings S(0)");
  EXPECT_EQ(Planned("model.norm.weight", 1), "norm R");
}

TEST(FindPlanned, KnowsTheStateOfOptimizers) {
  EXPECT_EQ(Planned("optimizer.state.layers.3.wq.weight.exp_avg", 2),
            "layers.*.w[qkv] S(0)");
  EXPECT_EQ(Planned("state.layers.3.wo.weight.exp_avg_sq", 2),
            "layers.*.wo S(1)");
  EXPECT_EQ(
      Planned("state.optimizers.AdamW.state.model.output.weight.exp_avg", 2),
      "output S(0)");
  EXPECT_EQ(Planned("app.optim.state.layers.3.wo.weight.exp_avg", 2),
            "layers.*.wo S(1)");
  EXPECT_EQ(Planned("optimizer.state.layers.3.wq.bias.exp_avg", 1),
            "layers.*.w[qkv] S(0)");
  EXPECT_EQ(Planned("optimizer.state.layers.3.wq.weight.step", 0),
            "layers.*.w[qkv] R");
  // A factored second moment has one number for each row.
  EXPECT_EQ(Planned("optimizer.state.layers.3.wq.weight.exp_avg_sq_row", 1),
            "layers.*.w[qkv] R");
}

TEST(FindPlanned, LeavesOtherNamesOut) {
  for (const char* name :
       {"layers.3.attention.output.weight", "vision.layers.3.wq.weight",
        "layers.3.wq.scale", "layers.3.w1.weight", "weight", "step", "",
        "optimizer.param_groups.layers.3.wq.weight.lr"}) {
    EXPECT_EQ(Planned(name, 2), "-") << name;
  }
}

TEST(FindPlanned, TheLongestPathThatMatchesCounts) {
  ParallelPlan plan = PlannedLlamaPlan();
  ASSERT_OK(
      plan.Add({.pattern = "model.output", .style = {.kind = Kind::kRowwise}}));
  ASSERT_OK_AND_ASSIGN(const PlannedTensor planned,
                       FindPlanned(plan, "model.output.weight", 2));
  EXPECT_EQ(planned.entry->pattern, "model.output");
}

TEST(FindPlanned, AParameterThatCannotBeCutIsAnError) {
  EXPECT_THAT(Planned("model.output.weight", 1),
              HasSubstr("output.weight has 1 dimensions"));
}

}  // namespace
}  // namespace dcp
