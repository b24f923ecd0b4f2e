// SPDX-License-Identifier: Apache-2.0
// Compares the tables with PyTorch 2.11's output for the same optimizers.
#include "fsdp/checkpoint/state/optimizer_kind.h"

#include <memory>
#include <string>
#include <vector>

#include "ATen/ops/ones.h"
#include "fsdp/optim/fused_adamw.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/checkpoint/state/state_keys.h"
#include "tests/testing/status_matchers.h"
#include "torch/optim/adagrad.h"
#include "torch/optim/adam.h"
#include "torch/optim/adamw.h"
#include "torch/optim/lbfgs.h"
#include "torch/optim/rmsprop.h"
#include "torch/optim/sgd.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
namespace optim = torch::optim;
using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<at::Tensor> Parameters() {
  return {at::ones({2, 3}).requires_grad_()};
}

OptimizerOptions& GroupOptions(optim::Optimizer& optimizer) {
  return optimizer.param_groups()[0].options();
}

struct Case {
  std::string name;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::vector<std::string> hyperparameters;
  std::vector<std::string> tensors;
  bool has_step;
};

std::vector<Case> Cases() {
  const std::vector<std::string> adam = {"lr",
                                         "betas",
                                         "eps",
                                         "weight_decay",
                                         "amsgrad",
                                         "maximize",
                                         "foreach",
                                         "capturable",
                                         "differentiable",
                                         "fused",
                                         "decoupled_weight_decay"};
  const std::vector<std::string> sgd = {
      "lr",       "momentum", "dampening",      "weight_decay", "nesterov",
      "maximize", "foreach",  "differentiable", "fused"};
  const std::vector<std::string> rmsprop = {
      "lr",           "momentum",   "alpha",   "eps",      "centered",
      "weight_decay", "capturable", "foreach", "maximize", "differentiable"};
  std::vector<Case> cases;
  const auto add = [&](std::string name, auto optimizer, auto hyper,
                       std::vector<std::string> tensors, bool has_step) {
    cases.push_back({std::move(name), std::move(optimizer), hyper,
                     std::move(tensors), has_step});
  };
  add("SGD", std::make_unique<optim::SGD>(Parameters(), optim::SGDOptions(1)),
      sgd, {}, false);
  add("SGD with momentum",
      std::make_unique<optim::SGD>(Parameters(),
                                   optim::SGDOptions(1).momentum(0.9)),
      sgd, {"momentum_buffer"}, false);
  add("Adam", std::make_unique<optim::Adam>(Parameters()), adam,
      {"exp_avg", "exp_avg_sq"}, true);
  add("AdamW with amsgrad",
      std::make_unique<optim::AdamW>(Parameters(),
                                     optim::AdamWOptions().amsgrad(true)),
      adam, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, true);
  add("FusedAdamW", std::make_unique<FusedAdamW>(Parameters()), adam,
      {"exp_avg", "exp_avg_sq"}, true);
  add("RMSprop", std::make_unique<optim::RMSprop>(Parameters()), rmsprop,
      {"square_avg"}, true);
  add("RMSprop with all",
      std::make_unique<optim::RMSprop>(
          Parameters(), optim::RMSpropOptions().momentum(1).centered(true)),
      rmsprop, {"square_avg", "momentum_buffer", "grad_avg"}, true);
  add("Adagrad", std::make_unique<optim::Adagrad>(Parameters()),
      std::vector<std::string>{"lr", "lr_decay", "eps", "weight_decay",
                               "initial_accumulator_value", "foreach",
                               "maximize", "differentiable", "fused"},
      {"sum"}, true);
  return cases;
}

TEST(OptimizerKind, KeysMatchPython) {
  for (Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const auto kind = FindOptimizerKind(*c.optimizer);
    ASSERT_OK(kind.status());
    OptimizerOptions& options = GroupOptions(*c.optimizer);
    EXPECT_THAT(testing::StateKeys((*kind)->GetHyperparameters(options)),
                ElementsAreArray(c.hyperparameters));
    std::vector<std::string> tensors;
    for (const StateTensor* tensor : (*kind)->TensorsUnder(options)) {
      tensors.push_back(tensor->key);
    }
    EXPECT_EQ(tensors, c.tensors);
    EXPECT_EQ((*kind)->has_step(), c.has_step);
    EXPECT_EQ((*kind)->HasState(options), c.has_step || !c.tensors.empty());
    // The values that were read can be set.
    std::vector<std::string> problems;
    (*kind)->SetHyperparameters((*kind)->GetHyperparameters(options), options,
                                problems);
    EXPECT_THAT(problems, IsEmpty());
  }
}

TEST(OptimizerKind, ReportsUnsettableValuesAndSetsTheRest) {
  optim::AdamW optimizer(Parameters());
  const OptimizerKind& kind = **FindOptimizerKind(optimizer);
  std::vector<std::string> problems;
  kind.SetHyperparameters({{"lr", 1},
                           {"betas", StateList{0, 0.5}},
                           {"eps", "x"},
                           {"amsgrad", 1},
                           {"decoupled_weight_decay", false},
                           {"fused", true},
                           {"unheard_of", 1}},
                          GroupOptions(optimizer), problems);
  EXPECT_THAT(problems,
              ElementsAre("eps is a text, not a number",
                          "amsgrad is an int, not a bool",
                          "decoupled_weight_decay is False, which this "
                          "optimizer does not support"));
  const auto& options =
      static_cast<const optim::AdamWOptions&>(GroupOptions(optimizer));
  EXPECT_EQ(options.lr(), 1);
  EXPECT_EQ(options.betas(), std::make_tuple(0.0, 0.5));
  EXPECT_EQ(options.eps(), 1e-8);
}

TEST(OptimizerKind, CompletesStateAndKeepsExistingTensors) {
  optim::AdamW optimizer(Parameters(), optim::AdamWOptions().amsgrad(true));
  const OptimizerKind& kind = **FindOptimizerKind(optimizer);
  optim::AdamWParamState half;
  half.step(7);
  half.exp_avg(at::ones({2, 3}));
  const auto state = kind.CompleteState(
      &half, optimizer.param_groups()[0].params()[0], GroupOptions(optimizer));
  auto& complete = static_cast<optim::AdamWParamState&>(*state);
  EXPECT_EQ(complete.step(), 7);
  EXPECT_TRUE(complete.exp_avg().is_alias_of(half.exp_avg()));
  EXPECT_EQ(complete.max_exp_avg_sq().sum().item<float>(), 0);
  EXPECT_FALSE(complete.exp_avg_sq().requires_grad());

  FusedAdamW fused(Parameters());
  const auto fresh =
      (*FindOptimizerKind(fused))
          ->CompleteState(nullptr, fused.param_groups()[0].params()[0],
                          GroupOptions(fused));
  EXPECT_EQ(static_cast<FusedAdamWParamState&>(*fresh).step().dim(), 0);

  optim::Adagrad adagrad(Parameters(),
                         optim::AdagradOptions().initial_accumulator_value(2));
  const auto sums =
      (*FindOptimizerKind(adagrad))
          ->CompleteState(nullptr, adagrad.param_groups()[0].params()[0],
                          GroupOptions(adagrad));
  EXPECT_EQ(
      static_cast<optim::AdagradParamState&>(*sums).sum().sum().item<float>(),
      12);
}

TEST(OptimizerKind, NamesUnknownOptimizers) {
  optim::LBFGS optimizer(Parameters());
  EXPECT_THAT(FindOptimizerKind(optimizer),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("LBFGS")));
}

}  // namespace
}  // namespace fsdp
