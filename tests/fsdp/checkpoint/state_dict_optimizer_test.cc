// SPDX-License-Identifier: Apache-2.0
// Optimizers' state dicts over real processes: training continues from them as
// if nothing had happened, on the same mesh or another.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/tied_parameters.h"
#include "fsdp/optim/fused_adamw.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/checkpoint/state_dict_cases.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/torch.h"

namespace fsdp {
namespace {

using absl::StatusCode;
using ::dcp::testing::StatusIs;
using ::fsdp::testing::Dict;
using ::fsdp::testing::ExpectSame;
using ::fsdp::testing::ListKeys;
using ::fsdp::testing::MakeAdamW;
using ::fsdp::testing::MakeModel;
using ::fsdp::testing::OptimizerPtr;
using ::fsdp::testing::RunRanks;
using ::fsdp::testing::ShardModel;
using ::fsdp::testing::TinyModel;
using ::fsdp::testing::TrainStep;
using ::fsdp::testing::WholeTensor;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using MakeOptimizer =
    std::function<OptimizerPtr(std::vector<torch::Tensor> parameters)>;

struct NamedOptimizer {
  std::string name;
  MakeOptimizer make;
};

TEST(StateDictOfOptimizer, HasPythonsFormat) {
  torch::nn::Sequential model(torch::nn::Linear(3, 2), torch::nn::Linear(2, 2));
  model[1]->parameters()[1].requires_grad_(false);
  OptimizerPtr optimizer = MakeAdamW(model->parameters());
  const auto state = get_optimizer_state_dict(*model, *optimizer);
  ASSERT_OK(state.status());
  EXPECT_THAT(ListKeys(*state), ElementsAre("state", "param_groups"));
  EXPECT_THAT(ListKeys(Dict(*state->find("state"))),
              ElementsAre("0.weight", "0.bias", "1.weight"));
  const StateDict& weight = Dict(*Dict(*state->find("state")).find("0.weight"));
  EXPECT_THAT(ListKeys(weight), ElementsAre("step", "exp_avg", "exp_avg_sq"));
  const auto& step = *weight.find("step")->get_if<at::Tensor>();
  EXPECT_EQ(step.dim(), 0);
  EXPECT_EQ(step.scalar_type(), at::kFloat);
  EXPECT_EQ(step.item<float>(), 0);
  const auto& groups = *state->find("param_groups")->get_if<StateList>();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_THAT(ListKeys(Dict(groups[0])),
              ElementsAre("lr", "betas", "eps", "weight_decay", "amsgrad",
                          "maximize", "foreach", "capturable", "differentiable",
                          "fused", "decoupled_weight_decay", "params"));
  // The frozen one is listed.
  EXPECT_EQ(Dict(groups[0]).find("params")->get_if<StateList>()->size(), 4u);

  const auto flat = get_optimizer_state_dict(
      *model, *optimizer, {.flatten_optimizer_state_dict = true});
  ASSERT_OK(flat.status());
  EXPECT_EQ(flat->size(), 3u * 3 + 4u * 11);
  EXPECT_EQ(*flat->find("param_groups.1.bias.lr")->get_if<double>(), 1e-2);
  EXPECT_NE(flat->find("state.0.bias.exp_avg_sq")->get_if<at::Tensor>(),
            nullptr);
}

TEST(StateDictOfOptimizer, GettingDoesNotChangeLaterSteps) {
  TinyModel one = MakeModel(9);
  TinyModel two = MakeModel(9);
  OptimizerPtr first = MakeAdamW(one->parameters());
  OptimizerPtr second = MakeAdamW(two->parameters());
  ASSERT_OK(get_optimizer_state_dict(*two, *second).status());
  for (int64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(TrainStep(one, *first, step, 0, 1),
              TrainStep(two, *second, step, 0, 1));
  }
}

std::vector<NamedOptimizer> AllOptimizers() {
  namespace optim = torch::optim;
  using Parameters = std::vector<torch::Tensor>;
  return {
      {"SGD",
       [](Parameters p) {
         return std::make_unique<optim::SGD>(
             p, optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01));
       }},
      {"SGD without state",
       [](Parameters p) {
         return std::make_unique<optim::SGD>(p, optim::SGDOptions(0.05));
       }},
      {"Adam",
       [](Parameters p) {
         return std::make_unique<optim::Adam>(p, optim::AdamOptions(0.01));
       }},
      {"AdamW",
       [](Parameters p) {
         return std::make_unique<optim::AdamW>(
             p, optim::AdamWOptions(0.01).amsgrad(true));
       }},
      {"RMSprop",
       [](Parameters p) {
         return std::make_unique<optim::RMSprop>(
             p, optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
       }},
      {"Adagrad",
       [](Parameters p) {
         return std::make_unique<optim::Adagrad>(
             p, optim::AdagradOptions(0.05).initial_accumulator_value(0.1));
       }},
      {"FusedAdamW",
       [](Parameters p) {
         return std::make_unique<FusedAdamW>(p, FusedAdamWOptions());
       }},
  };
}

// Trains on one mesh, carries model and optimizer over, and compares further
// training with the first.
TEST(StateDictOfOptimizer, TrainingContinuesOnAnotherMesh) {
  RunRanks(4, [] {
    init_process_group();
    const int64_t rank = get_rank();
    for (const NamedOptimizer& kind : AllOptimizers()) {
      SCOPED_TRACE(kind.name);
      TinyModel model = MakeModel(10, /*tied=*/true);
      ShardModel(model, {4});
      OptimizerPtr optimizer = kind.make(unique_parameters(*model));
      for (int64_t step = 0; step < 2; ++step) {
        TrainStep(model, *optimizer, step, rank, 4);
      }
      // Flattened for some.
      const StateDictOptions options = {
          .full_state_dict = true,
          .flatten_optimizer_state_dict = kind.name.size() % 2 == 0};
      const auto states = get_state_dict(*model, *optimizer, options);
      ASSERT_OK(states.status());

      TinyModel other = MakeModel(11, /*tied=*/true);
      ShardModel(other, {2, 2});
      OptimizerPtr other_optimizer = kind.make(unique_parameters(*other));
      for (auto& group : other_optimizer->param_groups()) {
        group.options().set_lr(77);
      }
      ASSERT_OK(set_state_dict(*other, *other_optimizer, states->first,
                               states->second, options)
                    .status());
      const auto again = get_state_dict(*other, *other_optimizer, options);
      ASSERT_OK(again.status());
      ExpectSame(states->first, again->first, "model");
      ExpectSame(states->second, again->second, "optimizer");
      for (int64_t step = 2; step < 4; ++step) {
        EXPECT_NEAR(TrainStep(model, *optimizer, step, rank, 4),
                    TrainStep(other, *other_optimizer, step, rank, 4), 1e-5);
      }
    }
  });
}

// As in PyTorch, where a state dict has the optimizer's own tensors.
TEST(StateDictOfOptimizer, LoadingIntoItLoadsIntoTheOptimizer) {
  RunRanks(2, [] {
    init_process_group();
    const int64_t rank = get_rank();
    const auto state = [](TinyModel& model,
                          torch::optim::Optimizer& optimizer) {
      return StateDict{{"model", *get_model_state_dict(*model)},
                       {"optim", *get_optimizer_state_dict(*model, optimizer)}};
    };
    for (const NamedOptimizer& kind : AllOptimizers()) {
      SCOPED_TRACE(kind.name);
      TinyModel model = MakeModel(12), other = MakeModel(13);
      ShardModel(model, {2});
      ShardModel(other, {2});
      OptimizerPtr optimizer = kind.make(model->parameters());
      for (int64_t step = 0; step < 3; ++step) {
        TrainStep(model, *optimizer, step, rank, 2);
      }
      const std::string path =
          absl::StrCat(fsdp::testing::SharedDir(), "/", kind.name);
      ASSERT_OK(save(state(model, *optimizer), path));
      OptimizerPtr resumed = kind.make(other->parameters());
      StateDict target = state(other, *resumed);
      state(other, *resumed);  // the first one stays tied to the optimizer
      ASSERT_OK(load(target, path));
      for (int64_t step = 3; step < 6; ++step) {
        EXPECT_EQ(TrainStep(model, *optimizer, step, rank, 2),
                  TrainStep(other, *resumed, step, rank, 2));
      }
      resumed.reset();
      EXPECT_OK(load(target, path));
    }
  });
}

TEST(StateDictOfOptimizer, RefusesAParameterListedTwice) {
  TinyModel model = MakeModel(14, /*tied=*/true);
  OptimizerPtr twice = MakeAdamW(model->parameters());
  const auto refused =
      StatusIs(StatusCode::kInvalidArgument,
               AllOf(HasSubstr("' is listed twice, and would be stepped twice"),
                     HasSubstr("fsdp::unique_parameters")));
  EXPECT_THAT(get_optimizer_state_dict(*model, *twice), refused);
  OptimizerPtr once = MakeAdamW(unique_parameters(*model));
  const auto state = get_optimizer_state_dict(*model, *once);
  ASSERT_OK(state.status());
  EXPECT_THAT(set_optimizer_state_dict(*model, *twice, *state), refused);
  FusedAdamW fused(model->parameters());
  EXPECT_OK(set_optimizer_state_dict(*model, fused, *state));
  EXPECT_EQ(fused.param_groups()[0].params().size(),
            unique_parameters(*model).size());
}

TEST(StateDictOfOptimizer, AcceptsNumbersForNames) {
  torch::nn::Linear model(3, 2);
  OptimizerPtr optimizer = MakeAdamW(model->parameters());
  const auto entry = [](double value, at::IntArrayRef shape) {
    return StateDict({{"step", 5},
                      {"exp_avg", torch::full(shape, value)},
                      {"exp_avg_sq", torch::full(shape, value)}});
  };
  const StateDict raw = {
      {"state", StateDict({{"0", entry(0.5, {2, 3})}, {"1", entry(2, {2})}})},
      {"param_groups", StateList{StateDict({{"lr", 0.25},
                                            {"betas", StateList{0.5, 0.75}},
                                            {"fused", StateValue()},
                                            {"initial_lr", 1.0},
                                            {"params", StateList{0, 1}}})}}};
  ASSERT_OK(set_optimizer_state_dict(*model, *optimizer, raw));
  const auto state = get_optimizer_state_dict(*model, *optimizer);
  ASSERT_OK(state.status());
  const StateDict& bias = Dict(*Dict(*state->find("state")).find("bias"));
  EXPECT_EQ(WholeTensor(*bias.find("step")).item<float>(), 5);
  EXPECT_TRUE(
      torch::equal(WholeTensor(*bias.find("exp_avg")), torch::full({2}, 2.)));
  const auto& options = static_cast<torch::optim::AdamWOptions&>(
      optimizer->param_groups()[0].options());
  EXPECT_EQ(options.lr(), 0.25);
  EXPECT_EQ(options.betas(), std::make_tuple(0.5, 0.75));
  EXPECT_EQ(options.eps(), 1e-8);
}

TEST(StateDictOfOptimizer, ListsAllErrorsAndChangesNothing) {
  torch::nn::Linear model(3, 2);
  OptimizerPtr optimizer = MakeAdamW(model->parameters());
  const StateDict state = {
      {"state",
       StateDict({{"weight", StateDict({{"exp_avg", torch::zeros({3})},
                                        {"other", torch::zeros({3})}})},
                  {"stranger", StateDict()}})},
      {"param_groups",
       StateList{StateDict({{"lr", "fast"},
                            {"maximize", true},
                            {"params", StateList{"weight"}}})}}};
  EXPECT_THAT(
      set_optimizer_state_dict(*model, *optimizer, state),
      StatusIs(
          StatusCode::kInvalidArgument,
          AllOf(HasSubstr("missing: param_groups.bias, state.weight.step, "
                          "state.weight.exp_avg_sq, state.bias"),
                HasSubstr("unexpected: state.weight.other, state.stranger"),
                HasSubstr("param_groups[0].lr is a text, not a number"),
                HasSubstr(
                    "maximize is True, which this optimizer does not support"),
                HasSubstr("state.weight.exp_avg has shape [3]"))));
  EXPECT_TRUE(optimizer->state().empty());
  EXPECT_EQ(optimizer->param_groups()[0].options().get_lr(), 1e-2);
  EXPECT_THAT(set_optimizer_state_dict(*model, *optimizer, {{"x", 1}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("the key x")));
  EXPECT_THAT(set_optimizer_state_dict(*model, *optimizer, {}),
              StatusIs(StatusCode::kNotFound, HasSubstr("state.weight")));
  EXPECT_OK(
      set_optimizer_state_dict(*model, *optimizer, {}, {.strict = false}));
}

TEST(StateDictOfOptimizer, FindsGroupsByName) {
  torch::nn::Linear model(3, 2);
  const auto make = [&](bool weight_first, double weight_lr, double bias_lr) {
    const auto group = [](const torch::Tensor& parameter, double lr) {
      return torch::optim::OptimizerParamGroup(
          {parameter}, std::make_unique<torch::optim::AdamWOptions>(lr));
    };
    std::vector<torch::optim::OptimizerParamGroup> groups;
    if (weight_first) groups.push_back(group(model->weight, weight_lr));
    groups.push_back(group(model->bias, bias_lr));
    if (!weight_first) groups.push_back(group(model->weight, weight_lr));
    return std::make_unique<torch::optim::AdamW>(groups);
  };
  const auto saved = make(true, 1, 2);
  const auto other = make(false, 0, 0);
  for (const bool flatten : {false, true}) {
    const auto state = get_optimizer_state_dict(
        *model, *saved, {.flatten_optimizer_state_dict = flatten});
    ASSERT_OK(set_optimizer_state_dict(*model, *other, *state));
    EXPECT_EQ(other->param_groups()[0].options().get_lr(), 2);
    EXPECT_EQ(other->param_groups()[1].options().get_lr(), 1);
    // In one group they would have to agree.
    OptimizerPtr together = MakeAdamW(model->parameters());
    EXPECT_THAT(set_optimizer_state_dict(*model, *together, *state),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr("lr is 1.0 for some parameters")));
  }
}

}  // namespace
}  // namespace fsdp
