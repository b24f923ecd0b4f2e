// SPDX-License-Identifier: Apache-2.0

#include "fsdp/optim/rebind_optimizer.h"

#include <memory>
#include <string>
#include <vector>

#include "fsdp/engine/lazy_key.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/materialize.h"
#include "fsdp/optim/fused_adamw.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/optim/adamw.h"
#include "torch/optim/sgd.h"
#include "torch/types.h"

namespace fsdp {
namespace {

using ::fsdp::testing::RunRanks;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

torch::nn::Sequential Model() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(6, 5), torch::nn::Tanh(),
                               torch::nn::Linear(5, 6));
}

void ShardModel(torch::nn::Sequential& model) {
  fully_shard(model->ptr(0));
  fully_shard(model->ptr(2));
  fully_shard(model);
}

// Two groups, in another order than the module's.
std::vector<torch::optim::OptimizerParamGroup> MakeGroups(
    const torch::nn::Sequential& model) {
  const auto p = model->parameters();
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{p[2], p[0]});
  groups.emplace_back(std::vector<torch::Tensor>{p[3], p[1]},
                      std::make_unique<torch::optim::SGDOptions>(/*lr=*/0.01));
  return groups;
}

void Step(torch::nn::Sequential& model, torch::optim::Optimizer& optimizer) {
  torch::manual_seed(5);
  optimizer.zero_grad();
  model->forward(torch::randn({4, 6})).square().mean().backward();
  optimizer.step();
}

TEST(RebindOptimizer, StepsShardsLikeALaterOptimizer) {
  RunRanks(2, [] {
    init_process_group();
    torch::nn::Sequential before = Model(), after = Model();
    torch::optim::SGD rebound(MakeGroups(before),
                              torch::optim::SGDOptions(0.1));
    const RememberedParameters names = remember_parameters(rebound, *before);
    EXPECT_THAT(names, ElementsAre(ElementsAre("2.weight", "0.weight"),
                                   ElementsAre("2.bias", "0.bias")));
    ShardModel(before);
    ShardModel(after);
    rebind_optimizer(rebound, *before, names);
    torch::optim::SGD built(MakeGroups(after), torch::optim::SGDOptions(0.1));
    for (int i = 0; i < 3; ++i) {
      Step(before, rebound);
      Step(after, built);
    }
    const auto expected = after->named_parameters();
    const torch::nn::Sequential start = Model();
    for (const auto& item : before->named_parameters()) {
      EXPECT_TRUE(item.value().equal(expected[item.key()])) << item.key();
    }
    EXPECT_FALSE(
        parameters(*before)[0].full_tensor().equal(start->parameters()[0]));
  });
}

TEST(RebindOptimizer, FollowsAModelFromTheMetaDevice) {
  RunRanks(2, [] {
    init_process_group();
    torch::nn::Sequential model{nullptr};
    {
      const MetaDeviceGuard on_meta;
      model = Model();
    }
    FusedAdamW optimizer(model->parameters());
    const RememberedParameters names = remember_parameters(optimizer, *model);
    ShardModel(model);
    to_empty(model, c10::kCPU);
    for (const auto& parameter : model->parameters()) {
      const torch::NoGradGuard no_grad;
      parameter.fill_(0.5);
    }
    rebind_optimizer(optimizer, *model, names);
    Step(model, optimizer);
    EXPECT_NE(model->parameters()[0].flatten()[0].item<float>(), 0.5f);
  });
}

TEST(RebindOptimizer, RefusesStateAndUnknownParametersByName) {
  torch::nn::Sequential model = Model();
  const torch::nn::Sequential other = Model();
  torch::optim::AdamW optimizer(model->parameters());
  EXPECT_THAT(
      [&] { remember_parameters(optimizer, *other); },
      ThrowsMessage<c10::ValueError>(AllOf(HasSubstr("parameter 0 of group 0"),
                                           HasSubstr("SequentialImpl"))));
  const RememberedParameters names = remember_parameters(optimizer, *model);
  Step(model, optimizer);
  EXPECT_THAT([&] { remember_parameters(optimizer, *model); },
              ThrowsMessage<c10::ValueError>(
                  AllOf(HasSubstr("'0.weight' has state"),
                        HasSubstr("before the first step"))));

  torch::nn::Sequential shorter(torch::nn::Linear(6, 5));
  EXPECT_THAT([&] { rebind_optimizer(optimizer, *shorter, names); },
              ThrowsMessage<c10::ValueError>(HasSubstr("'2.weight'")));
  EXPECT_THAT([&] { rebind_optimizer(optimizer, *model, {}); },
              ThrowsMessage<c10::ValueError>(HasSubstr("1 groups, but had 0")));
  // None of these calls changed the optimizer.
  EXPECT_TRUE(
      optimizer.param_groups()[0].params()[0].is_same(model->parameters()[0]));
}

}  // namespace
}  // namespace fsdp
