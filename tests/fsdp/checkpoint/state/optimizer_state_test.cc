// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/optimizer_state.h"

#include <memory>
#include <string>
#include <vector>

#include "fsdp/module/tied_parameters.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/checkpoint/state/state_keys.h"
#include "tests/testing/status_matchers.h"
#include "torch/nn.h"
#include "torch/optim/adamw.h"
#include "torch/optim/lbfgs.h"
#include "torch/optim/sgd.h"

namespace fsdp {
namespace {

using absl::StatusCode;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;

const StateDict& Dict(const StateValue& value) {
  return *value.get_if<StateDict>();
}

const StateDict& FindState(const StateDict& state, const std::string& name) {
  return Dict(*Dict(*state.find("state")).find(name));
}

// Plans, copies and commits.
absl::Status SetAll(const torch::nn::Module& module,
                    torch::optim::Optimizer& optimizer, const StateDict& state,
                    const StateDictOptions& options = {}) {
  Mismatches mismatches;
  auto plan = PlanOptimizer(module, optimizer, state, options, {}, mismatches);
  if (!plan.ok()) return plan.status();
  if (auto status = mismatches.ToStatus("optimizer"); !status.ok()) {
    return status;
  }
  for (const TensorCopy& copy : plan->copies) {
    if (auto status = RunCopy(copy); !status.ok()) return status;
  }
  return std::move(*plan).Commit(optimizer);
}

TEST(OptimizerState, OptionsInTheDictDecideWhichStateExists) {
  torch::nn::Linear model(3, 2);
  AdamW saved(model->parameters(), AdamWOptions(1).amsgrad(true));
  AdamW plain(model->parameters());
  const auto state = OptimizerState(*model, saved);
  ASSERT_OK(state.status());
  EXPECT_THAT(testing::StateKeys(FindState(*state, "bias")),
              ElementsAre("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"));
  FindState(*state, "bias")
      .find("max_exp_avg_sq")
      ->get_if<at::Tensor>()
      ->fill_(3);
  ASSERT_OK(SetAll(*model, plain, *state));
  const auto again = OptimizerState(*model, plain);
  EXPECT_TRUE(torch::equal(
      *FindState(*again, "bias").find("max_exp_avg_sq")->get_if<at::Tensor>(),
      torch::full({2}, 3.0)));
}

TEST(OptimizerState, KeepsExistingTensors) {
  torch::nn::Linear model(3, 2);
  AdamW optimizer(model->parameters());
  const auto state = OptimizerState(*model, optimizer);
  const at::Tensor average =
      *FindState(*state, "weight").find("exp_avg")->get_if<at::Tensor>();
  StateDict other = *state;
  for (auto& [name, entry] : *other.find("state")->get_if<StateDict>()) {
    for (auto& [key, value] : *entry.get_if<StateDict>()) {
      value = torch::full_like(*value.get_if<at::Tensor>(), 9);
    }
  }
  ASSERT_OK(SetAll(*model, optimizer, other));
  EXPECT_TRUE(torch::equal(average, torch::full({2, 3}, 9.0)));
  const auto again = OptimizerState(*model, optimizer);
  EXPECT_TRUE(FindState(*again, "weight")
                  .find("exp_avg")
                  ->get_if<at::Tensor>()
                  ->is_alias_of(average));
  EXPECT_EQ(FindState(*again, "weight")
                .find("step")
                ->get_if<at::Tensor>()
                ->item<float>(),
            9);
}

TEST(OptimizerState, OneDictHoldsSeveralOptimizers) {
  torch::nn::Linear model(3, 2);
  AdamW first({model->weight}, AdamWOptions(1));
  AdamW second({model->bias}, AdamWOptions(2));
  StateDict both = *OptimizerState(*model, first);
  const StateDict other = *OptimizerState(*model, second);
  (*both.find("state")->get_if<StateDict>())["bias"] = FindState(other, "bias");
  both.find("param_groups")
      ->get_if<StateList>()
      ->push_back(other.find("param_groups")->get_if<StateList>()->front());
  AdamW again({model->bias});
  ASSERT_OK(SetAll(*model, again, both));
  EXPECT_EQ(again.param_groups()[0].options().get_lr(), 2);
}

TEST(OptimizerState, FrozenParametersNeedNoState) {
  torch::nn::Linear model(3, 2);
  model->bias.requires_grad_(false);
  AdamW optimizer(model->parameters());
  const auto state = OptimizerState(*model, optimizer);
  EXPECT_THAT(testing::StateKeys(Dict(*state->find("state"))),
              ElementsAre("weight"));
  EXPECT_OK(SetAll(*model, optimizer, *state));
  // Neither does a group have to list them.
  AdamW of_trained({model->weight}, AdamWOptions(0.5));
  EXPECT_OK(SetAll(*model, optimizer, *OptimizerState(*model, of_trained)));
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.5);
}

TEST(OptimizerState, TiedParametersAreFoundByAnyName) {
  const torch::nn::Linear shared(torch::nn::LinearOptions(2, 2).bias(false));
  const torch::nn::Sequential model(shared, torch::nn::ReLU(), shared);
  AdamW optimizer(unique_parameters(*model));
  const auto state = OptimizerState(*model, optimizer);
  EXPECT_THAT(testing::StateKeys(Dict(*state->find("state"))),
              ElementsAre("0.weight"));
  const StateDict renamed = {
      {"state", StateDict({{"2.weight", FindState(*state, "0.weight")}})},
      {"param_groups",
       StateList{StateDict({{"lr", 0.5}, {"params", StateList{"2.weight"}}})}}};
  ASSERT_OK(SetAll(*model, optimizer, renamed));
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.5);
}

TEST(OptimizerState, GroupsWithoutParameters) {
  torch::nn::Linear model(3, 2);
  const auto make = [&](double lr) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(model->parameters(),
                        std::make_unique<torch::optim::SGDOptions>(1));
    groups.emplace_back(std::vector<at::Tensor>(),
                        std::make_unique<torch::optim::SGDOptions>(lr));
    return std::make_unique<torch::optim::SGD>(groups,
                                               torch::optim::SGDOptions(1));
  };
  const auto saved = make(3);
  const auto other = make(4);
  StateDict state = *OptimizerState(*model, *saved);
  ASSERT_OK(SetAll(*model, *other, state));
  EXPECT_EQ(other->param_groups()[1].options().get_lr(), 3);
  auto& groups = *state.find("param_groups")->get_if<StateList>();
  groups.push_back(groups[1]);
  EXPECT_THAT(
      SetAll(*model, *other, state),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("no parameters")));
}

TEST(OptimizerState, ParametersMustBeTheModules) {
  torch::nn::Linear model(3, 2);
  AdamW stranger({torch::ones({2}).requires_grad_()});
  EXPECT_THAT(OptimizerState(*model, stranger),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("is not a parameter of")));
  torch::optim::LBFGS lbfgs(model->parameters());
  EXPECT_THAT(OptimizerState(*model, lbfgs),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("LBFGS")));
}

}  // namespace
}  // namespace fsdp
