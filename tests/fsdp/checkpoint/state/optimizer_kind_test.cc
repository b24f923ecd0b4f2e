// SPDX-License-Identifier: Apache-2.0
// Compares the tables with PyTorch 2.11's output for the same optimizers.
#include "fsdp/checkpoint/state/optimizer_kind.h"

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ATen/ops/ones.h"
#include "fsdp/optim/fused_adamw.h"
#include "fsdp/optim/muon.h"
#include "fsdp/optim/muon_with_adamw.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/checkpoint/state/state_keys.h"
#include "tests/testing/status_matchers.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/adagrad.h"
#include "torch/optim/adam.h"
#include "torch/optim/adamw.h"
#include "torch/optim/lbfgs.h"
#include "torch/optim/rmsprop.h"
#include "torch/optim/sgd.h"

namespace fsdp {
namespace {

using absl::StatusCode;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<at::Tensor> Parameters() {
  return {at::ones({2, 3}).requires_grad_()};
}

OptimizerOptions& GroupOptions(torch::optim::Optimizer& optimizer) {
  return optimizer.param_groups()[0].options();
}

// Of the first group.
const OptimizerKind& Kind(const torch::optim::Optimizer& optimizer) {
  return *(*FindOptimizerKinds(optimizer))[0];
}

struct Case {
  std::string name;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
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
  add("SGD",
      std::make_unique<torch::optim::SGD>(Parameters(),
                                          torch::optim::SGDOptions(1)),
      sgd, {}, false);
  add("SGD with momentum",
      std::make_unique<torch::optim::SGD>(
          Parameters(), torch::optim::SGDOptions(1).momentum(0.9)),
      sgd, {"momentum_buffer"}, false);
  add("Adam", std::make_unique<torch::optim::Adam>(Parameters()), adam,
      {"exp_avg", "exp_avg_sq"}, true);
  add("AdamW with amsgrad",
      std::make_unique<torch::optim::AdamW>(
          Parameters(), torch::optim::AdamWOptions().amsgrad(true)),
      adam, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, true);
  add("FusedAdamW", std::make_unique<FusedAdamW>(Parameters()), adam,
      {"exp_avg", "exp_avg_sq"}, true);
  add("RMSprop", std::make_unique<torch::optim::RMSprop>(Parameters()), rmsprop,
      {"square_avg"}, true);
  add("RMSprop with all",
      std::make_unique<torch::optim::RMSprop>(
          Parameters(),
          torch::optim::RMSpropOptions().momentum(1).centered(true)),
      rmsprop, {"square_avg", "momentum_buffer", "grad_avg"}, true);
  add("Adagrad", std::make_unique<torch::optim::Adagrad>(Parameters()),
      std::vector<std::string>{"lr", "lr_decay", "eps", "weight_decay",
                               "initial_accumulator_value", "foreach",
                               "maximize", "differentiable", "fused"},
      {"sum"}, true);
  add("Muon", std::make_unique<fsdp::optim::Muon>(Parameters()),
      std::vector<std::string>{"lr", "weight_decay", "momentum", "nesterov",
                               "ns_coefficients", "eps", "ns_steps",
                               "adjust_lr_fn"},
      {"momentum_buffer"}, false);
  return cases;
}

TEST(OptimizerKind, KeysMatchPython) {
  for (Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    ASSERT_OK(FindOptimizerKinds(*c.optimizer).status());
    const OptimizerKind& kind = Kind(*c.optimizer);
    OptimizerOptions& options = GroupOptions(*c.optimizer);
    EXPECT_THAT(testing::StateKeys(kind.GetHyperparameters(options)),
                ElementsAreArray(c.hyperparameters));
    std::vector<std::string> tensors;
    for (const StateTensor* tensor : kind.TensorsUnder(options)) {
      tensors.push_back(tensor->key);
    }
    EXPECT_EQ(tensors, c.tensors);
    EXPECT_EQ(kind.has_step(), c.has_step);
    EXPECT_EQ(kind.HasState(options), c.has_step || !c.tensors.empty());
    // The values that were read can be set.
    std::vector<std::string> problems;
    kind.SetHyperparameters(kind.GetHyperparameters(options), options,
                            problems);
    EXPECT_THAT(problems, IsEmpty());
  }
}

TEST(OptimizerKind, ReportsUnsettableValuesAndSetsTheRest) {
  torch::optim::AdamW optimizer(Parameters());
  const OptimizerKind& kind = Kind(optimizer);
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
      static_cast<const torch::optim::AdamWOptions&>(GroupOptions(optimizer));
  EXPECT_EQ(options.lr(), 1);
  EXPECT_EQ(options.betas(), std::make_tuple(0.0, 0.5));
  EXPECT_EQ(options.eps(), 1e-8);
}

TEST(OptimizerKind, SetsMuonsOptions) {
  fsdp::optim::Muon optimizer(Parameters());
  const OptimizerKind& kind = Kind(optimizer);
  std::vector<std::string> problems;
  kind.SetHyperparameters({{"ns_coefficients", StateTuple{{1, 2.5, -3}}},
                           {"ns_steps", 7},
                           {"adjust_lr_fn", "match_rms_adamw"}},
                          GroupOptions(optimizer), problems);
  EXPECT_THAT(problems, IsEmpty());
  auto& options =
      static_cast<fsdp::optim::MuonOptions&>(GroupOptions(optimizer));
  EXPECT_EQ(options.ns_coefficients(), std::make_tuple(1.0, 2.5, -3.0));
  EXPECT_EQ(options.ns_steps(), 7);
  EXPECT_EQ(options.adjust_lr_fn(), "match_rms_adamw");
  kind.SetHyperparameters({{"ns_coefficients", StateTuple{{1, 2}}},
                           {"ns_steps", 1.5},
                           {"adjust_lr_fn", "fastest"}},
                          options, problems);
  EXPECT_THAT(problems,
              ElementsAre("ns_coefficients is a tuple, not three numbers",
                          "ns_steps is a float, not an int",
                          "adjust_lr_fn is 'fastest', which this optimizer "
                          "does not support"));
  kind.SetHyperparameters({{"adjust_lr_fn", StateValue()}}, options, problems);
  EXPECT_EQ(options.adjust_lr_fn(), std::nullopt);
}

TEST(OptimizerKind, HasTwoKindsInMuonWithAdamW) {
  const torch::nn::Linear linear(3, 2);
  const fsdp::optim::MuonWithAdamW optimizer(*linear, {});
  const auto kinds = FindOptimizerKinds(optimizer);
  ASSERT_OK(kinds.status());
  ASSERT_EQ(kinds->size(), 2u);
  EXPECT_STREQ((*kinds)[0]->tensors[0].key, "momentum_buffer");
  EXPECT_STREQ((*kinds)[1]->tensors[0].key, "exp_avg");
}

TEST(OptimizerKind, CompletesStateAndKeepsExistingTensors) {
  torch::optim::AdamW optimizer(Parameters(),
                                torch::optim::AdamWOptions().amsgrad(true));
  const OptimizerKind& kind = Kind(optimizer);
  torch::optim::AdamWParamState half;
  half.step(7);
  half.exp_avg(at::ones({2, 3}));
  const auto state = kind.CompleteState(
      &half, optimizer.param_groups()[0].params()[0], GroupOptions(optimizer));
  auto& complete = static_cast<torch::optim::AdamWParamState&>(*state);
  EXPECT_EQ(complete.step(), 7);
  EXPECT_TRUE(complete.exp_avg().is_alias_of(half.exp_avg()));
  EXPECT_EQ(complete.max_exp_avg_sq().sum().item<float>(), 0);
  EXPECT_FALSE(complete.exp_avg_sq().requires_grad());

  FusedAdamW fused(Parameters());
  const auto fresh = Kind(fused).CompleteState(
      nullptr, fused.param_groups()[0].params()[0], GroupOptions(fused));
  EXPECT_EQ(static_cast<FusedAdamWParamState&>(*fresh).step().dim(), 0);

  torch::optim::Adagrad adagrad(
      Parameters(),
      torch::optim::AdagradOptions().initial_accumulator_value(2));
  const auto sums = Kind(adagrad).CompleteState(
      nullptr, adagrad.param_groups()[0].params()[0], GroupOptions(adagrad));
  EXPECT_EQ(static_cast<torch::optim::AdagradParamState&>(*sums)
                .sum()
                .sum()
                .item<float>(),
            12);
}

TEST(OptimizerKind, NamesUnknownOptimizers) {
  torch::optim::LBFGS optimizer(Parameters());
  EXPECT_THAT(FindOptimizerKinds(optimizer),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("LBFGS")));
}

}  // namespace
}  // namespace fsdp
