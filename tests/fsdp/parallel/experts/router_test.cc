// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/experts/router.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "torch/types.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

// A router with the inputs as scores before the score function.
TokenChoiceTopKRouter Identity(const RouterOptions& options) {
  TokenChoiceTopKRouter router(options.num_experts, options);
  const torch::NoGradGuard no_grad;
  router->gate->weight.copy_(torch::eye(options.num_experts));
  return router;
}

at::Tensor Experts(const std::vector<int64_t>& experts) {
  return torch::tensor(experts, at::kLong).view({1, -1});
}

// The chosen experts, in ascending order.
at::Tensor Chosen(const TokenChoiceTopKRouterImpl::Choice& choice) {
  return std::get<0>(choice.experts.sort(-1));
}

TEST(Router, ChoosesTheBestScores) {
  TokenChoiceTopKRouter router = Identity({.num_experts = 4, .top_k = 2});
  const at::Tensor x = torch::tensor({{0.5, -1.0, 2.0, 1.0}});
  const auto choice = router(x);
  EXPECT_TRUE(Chosen(choice).equal(Experts({2, 3})));
  EXPECT_TRUE(choice.scores.equal(torch::sigmoid(x).gather(1, choice.experts)));
  EXPECT_EQ(choice.scores.scalar_type(), at::kFloat);
}

TEST(Router, SoftmaxNormAndScale) {
  const at::Tensor x = torch::tensor({{0.5, -1.0, 2.0, 1.0}});
  const auto scores = [&](RouterOptions options) {
    options.num_experts = 4;
    options.top_k = 2;
    return std::get<0>(Identity(options)(x).scores.sort(-1));
  };
  const at::Tensor softmax = torch::softmax(x, 1);
  const at::Tensor best = torch::stack({softmax[0][3], softmax[0][2]});
  EXPECT_TRUE(torch::allclose(
      scores({.score_func = ScoreFunction::kSoftmax})[0], best));
  EXPECT_TRUE(torch::allclose(scores({.score_func = ScoreFunction::kSoftmax,
                                      .route_norm = true,
                                      .route_scale = 2.5})[0],
                              2.5 * best / best.sum()));
}

TEST(Router, BiasChangesTheChoiceAndNotTheScores) {
  TokenChoiceTopKRouter router = Identity({.num_experts = 3, .top_k = 1});
  const at::Tensor x = torch::tensor({{1.0, 0.0, -1.0}});
  const auto choice = router(x, torch::tensor({0.0, 0.0, 1.0}));
  EXPECT_TRUE(choice.experts.equal(Experts({2})));
  EXPECT_TRUE(choice.scores[0].equal(torch::sigmoid(x[0].narrow(0, 2, 1))));
}

TEST(Router, ChoosesWithinTheBestGroups) {
  TokenChoiceTopKRouter router = Identity({.num_experts = 6,
                                           .top_k = 2,
                                           .num_expert_groups = 3,
                                           .num_limited_groups = 1});
  // The best expert is in a group with a bad second expert.
  const auto choice = router(torch::tensor({{3.0, -9.0, 1.5, 1.0, 0.0, 0.0}}));
  EXPECT_TRUE(Chosen(choice).equal(Experts({2, 3})));
}

TEST(Router, ScoresInAtLeastFloat32) {
  TokenChoiceTopKRouter router = Identity({.num_experts = 4});
  router->to(at::kBFloat16);
  const at::Tensor x = torch::randn({2, 4});
  EXPECT_EQ(router(x.to(at::kBFloat16)).scores.scalar_type(), at::kFloat);
  router->to(at::kDouble);
  EXPECT_EQ(router(x.to(at::kDouble)).scores.scalar_type(), at::kDouble);
}

TEST(Router, ScoresHaveGradientsAndTheBiasHasNone) {
  TokenChoiceTopKRouter router(
      3, RouterOptions{.num_experts = 4, .top_k = 2, .gate_bias = true});
  router(torch::randn({5, 3}), torch::zeros({4})).scores.sum().backward();
  EXPECT_TRUE(router->gate->weight.grad().any().item<bool>());
  EXPECT_TRUE(router->gate->bias.grad().any().item<bool>());
  EXPECT_EQ(router(torch::randn({0, 3})).experts.sizes(),
            torch::IntArrayRef({0, 2}));
}

TEST(Router, RefusesOptionsThatContradictEachOther) {
  const auto error = [](const RouterOptions& options) {
    return testing::ThrownMessage([&] { TokenChoiceTopKRouter(4, options); });
  };
  EXPECT_THAT(error({.num_experts = 4, .top_k = 5}),
              HasSubstr("top_k (5) must be between 1 and num_experts (4)"));
  EXPECT_THAT(error({.num_experts = 8, .num_expert_groups = 3}),
              HasSubstr("num_experts (8) must be divisible by "
                        "num_expert_groups (3)"));
  EXPECT_THAT(error({.num_experts = 4, .num_expert_groups = 4}),
              HasSubstr("leaves 1 expert in a group"));
  EXPECT_THAT(error({.num_experts = 4, .num_expert_groups = 2}),
              HasSubstr("requires num_limited_groups"));
  EXPECT_THAT(
      error(
          {.num_experts = 4, .num_expert_groups = 2, .num_limited_groups = 3}),
      HasSubstr("num_limited_groups (3) must be between"));
  EXPECT_THAT(error({.num_experts = 4,
                     .top_k = 3,
                     .num_expert_groups = 2,
                     .num_limited_groups = 1}),
              HasSubstr("top_k (3) is more than the 2 experts"));
}

}  // namespace
}  // namespace fsdp
