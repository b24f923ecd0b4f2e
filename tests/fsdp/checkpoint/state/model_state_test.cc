// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/model_state.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "torch/nn.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> CopyNames(const ModelPlan& plan) {
  std::vector<std::string> names;
  for (const TensorCopy& copy : plan.copies) names.push_back(copy.name);
  return names;
}

TEST(ModelPlan, CopiesOnceIntoATiedTensorAndMissesNone) {
  const torch::nn::Linear shared(torch::nn::LinearOptions(2, 2).bias(false));
  const torch::nn::Sequential model(shared, torch::nn::Linear(2, 1), shared);
  const auto state = ModelState(*model, {});
  ASSERT_OK(state.status());
  EXPECT_EQ(state->size(), 4u);
  Mismatches mismatches;
  const auto plan = PlanModel(*model, *state, {}, {}, mismatches);
  ASSERT_OK(plan.status());
  EXPECT_OK(mismatches.ToStatus("model"));
  EXPECT_THAT(CopyNames(*plan), ElementsAre("0.weight", "1.weight", "1.bias"));
  EXPECT_FALSE(plan->copies[0].dst.requires_grad());
}

TEST(ModelPlan, NotStrictListsNamesAndPlansTheRest) {
  const torch::nn::Linear model(2, 1);
  const StateDict state = {{"other", 1}, {"bias", torch::zeros({1})}};
  for (const bool strict : {true, false}) {
    Mismatches mismatches;
    const auto plan =
        PlanModel(*model, state, {.strict = strict}, {}, mismatches);
    ASSERT_OK(plan.status());
    EXPECT_THAT(CopyNames(*plan), ElementsAre("bias"));
    EXPECT_THAT(plan->keys.missing_keys, ElementsAre("weight"));
    EXPECT_THAT(plan->keys.unexpected_keys, ElementsAre("other"));
    if (strict) {
      EXPECT_THAT(mismatches.missing, ElementsAre("weight"));
      EXPECT_THAT(mismatches.unexpected, ElementsAre("other"));
    } else {
      EXPECT_THAT(mismatches.missing, IsEmpty());
      EXPECT_THAT(mismatches.unexpected, IsEmpty());
    }
  }
}

}  // namespace
}  // namespace fsdp
