#include "fsdp/prepare/learning_rate.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/ops/ones.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;

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
  // As a run that goes on.
  rate.set_step(3);
  EXPECT_EQ(rates(0), 0.375);
  rate.step();
  EXPECT_EQ(rates(0), 0.25);
}

TEST(LearningRateScheduler, OptionsOfAdamWAreTheConfigs) {
  const torch::optim::AdamWOptions options =
      adamw_options(SomeLoop(), torch::optim::AdamWOptions().weight_decay(0.3));
  EXPECT_EQ(options.lr(), 0.5);
  EXPECT_EQ(options.betas(), std::make_tuple(0.9, 0.95));
  EXPECT_EQ(options.eps(), 1e-6);
  EXPECT_EQ(options.weight_decay(), 0.3);
}

}  // namespace
}  // namespace fsdp
