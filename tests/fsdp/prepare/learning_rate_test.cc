// SPDX-License-Identifier: Apache-2.0

#include "fsdp/prepare/learning_rate.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/ops/ones.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/optim/fused_adamw.h"
#include "fsdp/optim/muon.h"
#include "fsdp/optim/muon_with_adamw.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/sgd.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

LoopConfig SomeLoop() {
  LoopConfig loop;
  loop.lr = std::optional(0.5);
  loop.beta2 = std::optional(0.95);
  loop.eps = std::optional(1e-6);
  return loop;
}

TEST(LearningRateScheduler, StepsEachGroupByItsOwnRate) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{at::ones({2})});
  groups.emplace_back(std::vector<at::Tensor>{at::ones({3})},
                      std::make_unique<torch::optim::AdamWOptions>(0.25));
  torch::optim::AdamW optimizer(std::move(groups), adamw_options(SomeLoop()));
  LearningRate rate(
      optimizer,
      {.decay = LrDecay::kLinear, .warmup_steps = 2, .min_factor = 0.5}, 4);
  const auto rates = [&optimizer](size_t group) {
    return optimizer.param_groups().at(group).options().get_lr();
  };
  std::vector<double> first = {rates(0)}, second = {rates(1)};
  for (int step = 1; step < 5; ++step) {
    rate.step();
    first.push_back(rates(0));
    second.push_back(rates(1));
  }
  EXPECT_THAT(first, ElementsAre(0.0, 0.25, 0.5, 0.375, 0.25));
  EXPECT_THAT(second, ElementsAre(0.0, 0.125, 0.25, 0.1875, 0.125));
  // As in a run that resumes.
  rate.set_step(3);
  EXPECT_EQ(rates(0), 0.375);
  rate.step();
  EXPECT_EQ(rates(0), 0.25);
}

TEST(LearningRateScheduler, AdamWOptionsComeFromTheConfig) {
  const torch::optim::AdamWOptions options =
      adamw_options(SomeLoop(), torch::optim::AdamWOptions().weight_decay(0.3));
  EXPECT_EQ(options.lr(), 0.5);
  EXPECT_EQ(options.betas(), std::make_tuple(0.9, 0.95));
  EXPECT_EQ(options.eps(), 1e-6);
  EXPECT_EQ(options.weight_decay(), 0.3);
}

// A config's values for two groups, where the second has a different decay.
template <typename Optimizer, typename Options>
void ExpectSetsWhatIsNoGroupsOwn() {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{at::ones({2})});
  groups.emplace_back(std::vector<at::Tensor>{at::ones({3})},
                      std::make_unique<Options>(Options(3e-4).weight_decay(0)));
  Optimizer optimizer(std::move(groups), Options(3e-4));
  LoopConfig loop = SomeLoop();
  loop.weight_decay = std::optional(0.2);
  EXPECT_OK(set_hyperparameters(loop, optimizer));
  for (const size_t i : {0, 1}) {
    const auto& options =
        static_cast<const Options&>(optimizer.param_groups()[i].options());
    EXPECT_EQ(options.lr(), 0.5);
    EXPECT_EQ(options.betas(), std::make_tuple(0.9, 0.95));
    EXPECT_EQ(options.eps(), 1e-6);
    EXPECT_EQ(options.weight_decay(), i == 0 ? 0.2 : 0.0);
  }
}

TEST(LearningRateScheduler, SetsAdamWsHyperparameters) {
  ExpectSetsWhatIsNoGroupsOwn<torch::optim::AdamW,
                              torch::optim::AdamWOptions>();
  ExpectSetsWhatIsNoGroupsOwn<FusedAdamW, FusedAdamWOptions>();
}

TEST(LearningRateScheduler, GivesMuonOnlyNumbersThatMeanTheSameThere) {
  const torch::nn::Linear linear(3, 2);
  for (const bool matches : {false, true}) {
    optim::MuonOptions muon(0.125);
    if (matches) muon.adjust_lr_fn("match_rms_adamw");
    optim::MuonWithAdamW optimizer(*linear, {}, {.muon = muon});
    EXPECT_OK(set_hyperparameters(SomeLoop(), optimizer));
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(),
              matches ? 0.5 : 0.125);
    const auto& adamw = static_cast<const FusedAdamWOptions&>(
        optimizer.param_groups()[1].options());
    EXPECT_EQ(adamw.lr(), 0.5);
    EXPECT_EQ(adamw.eps(), 1e-6);
  }
}

TEST(LearningRateScheduler, RefusesOtherOptimizersWithTheConfigsLine) {
  torch::optim::SGD sgd({at::ones({2})}, 0.1);
  EXPECT_OK(set_hyperparameters(LoopConfig(), sgd));
  LoopConfig loop;
  loop.eps = Some(1e-6, {.file = "run.json", .line = 3, .key = "adam_epsilon"});
  EXPECT_THAT(set_hyperparameters(loop, sgd),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("run.json:3: adam_epsilon is 1e-06 and for "
                                 "AdamW")));
  EXPECT_EQ(sgd.param_groups()[0].options().get_lr(), 0.1);
  // Adam is not AdamW.
  FusedAdamW adam({at::ones({2})},
                  FusedAdamWOptions(0.1).decoupled_weight_decay(false));
  EXPECT_FALSE(set_hyperparameters(loop, adam).ok());
}

TEST(LearningRateScheduler, StateIsTheStep) {
  const auto make = [](torch::optim::Optimizer& optimizer) {
    return LearningRate(optimizer, {.decay = LrDecay::kLinear}, 4);
  };
  torch::optim::AdamW first({at::ones({2})}, 1.0), second({at::ones({2})}, 1.0);
  LearningRate saved = make(first), loaded = make(second);
  for (int step = 0; step < 3; ++step) saved.step();
  const absl::StatusOr<StateDict> state = saved.state_dict();
  ASSERT_OK(state.status());
  EXPECT_EQ(*state->find("last_epoch")->get_if<int64_t>(), 3);
  EXPECT_OK(loaded.load_state_dict(*state));
  EXPECT_EQ(second.param_groups()[0].options().get_lr(), 0.25);
  for (const StateValue& value :
       {StateValue("3"), StateValue(-1), StateValue(1e3)}) {
    EXPECT_THAT(
        loaded.load_state_dict({{"last_epoch", value}}),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("last_epoch")));
  }
  EXPECT_FALSE(loaded.load_state_dict({}).ok());
  EXPECT_EQ(second.param_groups()[0].options().get_lr(), 0.25);
}

TEST(LearningRateScheduler, SomeCurvesNeedTheRunsLength) {
  EXPECT_FALSE(needs_num_steps({.warmup_steps = 3}));
  EXPECT_TRUE(needs_num_steps({.warmup_ratio = 0.1}));
  EXPECT_TRUE(needs_num_steps({.decay = LrDecay::kCosine}));
  EXPECT_FALSE(
      needs_num_steps({.decay = LrDecay::kCosine, .total_steps = 100}));
}

}  // namespace
}  // namespace fsdp
