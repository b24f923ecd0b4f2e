// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/experts/moe.h"

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/module/init_defaults.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MoEArgs MakeArgs(bool before, int64_t shared) {
  return {.router = {.num_experts = 4, .top_k = 2},
          .num_shared_experts = shared,
          .score_before_experts = before};
}

// One expert in `moe` for one token.
at::Tensor Expert(MoE& moe, int64_t e, const at::Tensor& x) {
  const auto& w = moe->experts;
  return w->w2[e].mv(torch::silu(w->w1[e].mv(x)) * w->w3[e].mv(x));
}

void ExpectTokenByToken(MoE& moe) {
  const at::Tensor x = torch::randn({2, 5, 6});
  const at::Tensor y = moe(x);
  ASSERT_EQ(y.sizes(), x.sizes());
  const auto choice = moe->router(x.reshape({-1, 6}), moe->expert_bias);
  for (int64_t t = 0; t < 10; ++t) {
    const at::Tensor token = x.view({-1, 6})[t];
    at::Tensor expected = moe->shared_experts.is_empty()
                              ? torch::zeros({6})
                              : moe->shared_experts(token);
    for (int64_t k = 0; k < 2; ++k) {
      const int64_t e = choice.experts[t][k].item<int64_t>();
      const at::Tensor score = choice.scores[t][k];
      expected = expected + (moe->args().score_before_experts
                                 ? Expert(moe, e, token * score)
                                 : Expert(moe, e, token) * score);
    }
    EXPECT_TRUE(torch::allclose(y.view({-1, 6})[t], expected, 1e-4, 1e-7));
  }
}

TEST(MoE, MatchesTheExpertsTokenByToken) {
  torch::manual_seed(1);
  MoE before(MakeArgs(/*before=*/true, /*shared=*/0), 6, 5);
  ExpectTokenByToken(before);
  MoE after(MakeArgs(/*before=*/false, /*shared=*/2), 6, 5);
  EXPECT_EQ(after->shared_experts->w1->weight.size(0), 10);
  ExpectTokenByToken(after);
}

TEST(MoE, StateHasTorchTitansNames) {
  MoE moe(MakeArgs(true, 1), 6, 5);
  std::vector<std::string> names;
  for (const auto& item : moe->named_parameters()) names.push_back(item.key());
  EXPECT_THAT(
      names,
      ElementsAre("experts.w1", "experts.w2", "experts.w3",
                  "router.gate.weight", "shared_experts.w1.weight",
                  "shared_experts.w2.weight", "shared_experts.w3.weight"));
  ASSERT_EQ(moe->named_buffers().size(), 1u);
  EXPECT_EQ(moe->named_buffers()[0].key(), "expert_bias");
}

TEST(MoE, CountsTrainingTokensOnce) {
  MoE moe(MakeArgs(true, 1), 6, 5);
  const at::Tensor x = torch::randn({1, 5, 6});
  moe(x);
  EXPECT_EQ(moe->tokens_per_expert.sum().item<double>(), 10);
  moe->eval();
  moe(x);
  EXPECT_EQ(moe->tokens_per_expert.sum().item<double>(), 10);
  moe->train();
  // Recomputed in backward, which does not count it again.
  checkpoint([&](const at::Tensor& t) { return moe(t); }, x).sum().backward();
  EXPECT_EQ(moe->tokens_per_expert.sum().item<double>(), 20);
}

TEST(MoE, InitialisesByName) {
  torch::nn::Sequential model(MoE(MakeArgs(true, 1), 6, 5));
  torch::nn::Sequential other(MoE(MakeArgs(true, 1), 6, 5));
  init::default_(*model, /*seed=*/7, moe_init(/*init_std=*/0.5));
  init::default_(*other, /*seed=*/7, moe_init(/*init_std=*/0.5));
  const auto expected = other->named_parameters();
  for (const auto& item : model->named_parameters()) {
    EXPECT_TRUE(item.value().equal(expected[item.key()])) << item.key();
  }
  const auto& experts = model->at<MoEImpl>(0).experts;
  EXPECT_NEAR(experts->w1.std().item<double>(), 0.02, 0.01);
  EXPECT_NEAR(experts->w2.std().item<double>(), 0.5, 0.15);
  EXPECT_FALSE(experts->w1.equal(experts->w3));
}

TEST(MoE, RefusesInvalidArguments) {
  EXPECT_THAT(testing::ThrownMessage([] { MoE(MakeArgs(true, -1), 6, 5); }),
              HasSubstr("num_shared_experts is -1"));
  MoEArgs args = MakeArgs(true, 1);
  args.load_balance_coeff = 0;
  EXPECT_THAT(testing::ThrownMessage([&] { MoE(args, 6, 5); }),
              HasSubstr("load_balance_coeff is 0, but must be positive"));
  args.load_balance_coeff = {};
  EXPECT_FALSE(MoE(args, 6, 5)->expert_bias.defined());
}

}  // namespace
}  // namespace fsdp
