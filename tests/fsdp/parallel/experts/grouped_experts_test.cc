// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/experts/grouped_experts.h"

#include <cstdint>
#include <vector>

#include "fsdp/parallel/experts/expert_order.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "torch/nn/functional.h"
#include "torch/types.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

struct Pass {
  at::Tensor output;
  std::vector<at::Tensor> gradients;  // for rows, w1, w2, w3
};

using RunExperts = at::Tensor (*)(const at::Tensor&, const at::Tensor&,
                                  const at::Tensor&, const at::Tensor&,
                                  const at::Tensor&);

Pass RunPass(RunExperts run, const std::vector<at::Tensor>& inputs,
             const at::Tensor& counts, const at::Tensor& gradient) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().clone().requires_grad_());
  }
  Pass result;
  result.output = run(leaves[1], leaves[2], leaves[3], leaves[0], counts);
  result.output.backward(gradient);
  for (const at::Tensor& leaf : leaves) {
    result.gradients.push_back(leaf.grad());
  }
  return result;
}

TEST(GroupedExperts, LoopMatchesOneFeedForwardPerExpert) {
  GroupedExperts experts(6, 5, 3);
  const std::vector<int64_t> sizes = {2, 0, 3};
  const at::Tensor x = torch::randn({5, 6});
  const at::Tensor y = experts(x, torch::tensor(sizes, at::kLong));
  int64_t row = 0;
  for (int64_t e = 0; e < 3; ++e) {
    for (int64_t i = 0; i < sizes[static_cast<size_t>(e)]; ++i, ++row) {
      const at::Tensor hidden =
          torch::silu(experts->w1[e].mv(x[row])) * experts->w3[e].mv(x[row]);
      EXPECT_TRUE(
          torch::allclose(y[row], experts->w2[e].mv(hidden), 1e-5, 1e-8));
    }
  }
}

TEST(GroupedExperts, WithoutRowsWeightGradientsAreZero) {
  GroupedExperts experts(6, 5, 3);
  const at::Tensor y =
      experts(torch::empty({0, 6}), torch::zeros({3}, at::kLong));
  EXPECT_EQ(y.sizes(), torch::IntArrayRef({0, 6}));
  y.sum().backward();
  for (const at::Tensor& weight : experts->parameters()) {
    ASSERT_TRUE(weight.grad().defined());
    EXPECT_FALSE(weight.grad().any().item<bool>());
  }
}

// The grouped products that CUDA runs, here by LibTorch's own loop.
TEST(GroupedExperts, GroupedMatchesTheLoop) {
  torch::manual_seed(5);
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{3, 0, 13, 8}, std::vector<int64_t>{0, 0, 0, 24},
        std::vector<int64_t>{8, 8, 8, 0}}) {
    const at::Tensor counts = torch::tensor(sizes, at::kLong);
    std::vector<at::Tensor> inputs = {
        torch::randn({24, 16}), torch::randn({4, 32, 16}),
        torch::randn({4, 16, 32}), torch::randn({4, 32, 16})};
    for (at::Tensor& input : inputs) input = input.to(at::kBFloat16);
    const at::Tensor gradient = torch::randn({24, 16}).to(at::kBFloat16);
    const Pass loop = RunPass(RunExpertsInALoop, inputs, counts, gradient);
    const Pass grouped = RunPass(RunExpertsGrouped, inputs, counts, gradient);
    const auto is_close = [](const at::Tensor& a, const at::Tensor& b) {
      const double scale = b.abs().max().to(at::kDouble).item<double>();
      return (a - b).abs().max().to(at::kDouble).item<double>() <= scale / 50;
    };
    EXPECT_TRUE(is_close(grouped.output, loop.output)) << counts;
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(is_close(grouped.gradients[i], loop.gradients[i]))
          << "gradient " << i << " of " << counts;
    }
  }
}

TEST(GroupedExperts, RefusesCountsForOtherExperts) {
  GroupedExperts experts(6, 5, 3);
  EXPECT_THAT(testing::ThrownMessage([&] {
                experts(torch::ones({2, 6}), torch::ones({2}, at::kLong));
              }),
              HasSubstr("num_tokens_per_expert has shape [2], but there are 3 "
                        "experts"));
}

}  // namespace
}  // namespace fsdp
