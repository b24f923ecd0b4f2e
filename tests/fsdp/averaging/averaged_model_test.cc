// SPDX-License-Identifier: Apache-2.0

#include "fsdp/averaging/averaged_model.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "c10/util/Exception.h"
#include "fsdp/averaging/averages_scope.h"
#include "fsdp/averaging/averaging_steps.h"
#include "fsdp/averaging/avg_fn.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/reader_pair.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/nn.h"
#include "torch/optim/sgd.h"
#include "torch/types.h"

namespace fsdp::optim {
namespace {

using dcp::testing::StatusIs;
using ::testing::AllOf;
using testing::Both;
using testing::Close;
using ::testing::HasSubstr;
using testing::Input;
using testing::MakeBoth;
using testing::Pair;
using testing::RunRanks;
using testing::StartRankInDouble;
using testing::ThrownMessage;
using torch::Tensor;
using torch::nn::Module;

void TrainStep(Pair& model, torch::optim::Optimizer& optimizer) {
  optimizer.zero_grad();
  (model->forward(Input()) - 1).square().mean().backward();
  optimizer.step();
}

// Every parameter's whole average, by name.
std::vector<std::pair<std::string, Tensor>> WholeAverages(
    AveragedModel& average) {
  std::vector<std::pair<std::string, Tensor>> whole;
  const absl::StatusOr<StateDict> state = average.state_dict();
  EXPECT_OK(state.status());
  for (const auto& [key, value] : *state) {
    if (const auto* sharded = value.get_if<DTensor>()) {
      whole.emplace_back(key, sharded->full_tensor());
    } else {
      whole.emplace_back(key, *value.get_if<Tensor>());
    }
  }
  return whole;
}

// Weights 1 - d, d (1 - d), ..., d^n for an EMA of n + 1 models; 1 / (n + 1)
// for a mean: the averages by their definitions, in one sum.
Tensor WeightedSum(const std::vector<Tensor>& models, double decay) {
  const auto num = static_cast<double>(models.size());
  Tensor sum = torch::zeros_like(models[0]);
  double rest = 1;
  for (size_t i = models.size(); i-- > 0;) {
    const double weight = decay < 0 ? 1 / num
                          : i == 0  ? rest
                                    : rest * (1 - decay);
    sum += models[i] * weight;
    rest *= decay < 0 ? 1 : decay;
  }
  return sum;
}

class Averages : public ::testing::TestWithParam<int> {};

TEST_P(Averages, AreTheWeightedSumsOfAllModels) {
  RunRanks(GetParam(), [] {
    StartRankInDouble();
    for (const double decay : {-1.0, 0.0, 0.75, 1.0}) {
      Both both = MakeBoth();
      const AvgFn avg_fn = decay < 0 ? nullptr : get_ema_avg_fn(decay);
      AveragedModel average(*both.model, {.avg_fn = avg_fn});
      torch::optim::SGD ours(both.model->parameters(), 0.1);
      torch::optim::SGD theirs(both.reference->parameters(), 0.1);
      std::vector<std::vector<Tensor>> models;
      for (int step = 0; step < 5; ++step) {
        TrainStep(both.model, ours);
        TrainStep(both.reference, theirs);
        average.update_parameters(*both.model);
        std::vector<Tensor> now = both.reference->parameters();
        models.resize(now.size());
        for (size_t i = 0; i < now.size(); ++i) {
          models[i].push_back(now[i].detach().clone());
        }
      }
      EXPECT_EQ(average.n_averaged(), 5);
      const auto whole = WholeAverages(average);
      ASSERT_EQ(whole.size(), models.size() + 1);
      EXPECT_EQ(whole[0].first, "n_averaged");
      EXPECT_EQ(whole[1].first, "module.a.weight");
      for (size_t i = 0; i < models.size(); ++i) {
        EXPECT_TRUE(Close(whole[i + 1].second, WeightedSum(models[i], decay)))
            << whole[i + 1].first << " " << decay;
      }
    }
  });
}

TEST_P(Averages, ComputeInAScopeAndLeaveAfterIt) {
  RunRanks(GetParam(), [] {
    StartRankInDouble();
    for (const bool reshard : {true, false}) {
      Both both = MakeBoth({.reshard_after_forward = reshard});
      AveragedModel average(*both.model, {.avg_fn = get_ema_avg_fn(0.5)});
      AveragedModel expected(*both.reference, {.avg_fn = get_ema_avg_fn(0.5)});
      torch::optim::SGD ours(both.model->parameters(), 0.1);
      torch::optim::SGD theirs(both.reference->parameters(), 0.1);
      for (int step = 0; step < 3; ++step) {
        TrainStep(both.model, ours);
        TrainStep(both.reference, theirs);
        average.update_parameters(*both.model);
        expected.update_parameters(*both.reference);
        const auto before = WholeAverages(expected);
        const torch::NoGradGuard no_grad;
        const Tensor trained = both.model->forward(Input());
        Pair averaged;
        for (Tensor& parameter : averaged->parameters()) parameter.zero_();
        for (size_t i = 1; i < before.size(); ++i) {
          averaged->named_parameters()[before[i].first.substr(7)].copy_(
              before[i].second);
        }
        const std::string error = ThrownMessage([&] {
          const AveragesScope scope(average, *both.model);
          EXPECT_TRUE(
              Close(both.model->forward(Input()), averaged->forward(Input())));
          TORCH_CHECK(false, "an evaluation that fails");
        });
        EXPECT_THAT(error, HasSubstr("an evaluation that fails"));
        EXPECT_TRUE(torch::equal(both.model->forward(Input()), trained));
        const auto after = WholeAverages(average);
        for (size_t i = 1; i < after.size(); ++i) {
          EXPECT_TRUE(Close(after[i].second, before[i].second));
        }
      }
      testing::ExpectSameParameters(*both.model, *both.reference);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Averages, ::testing::Values(1, 2, 3));

TEST(AveragedModel, NeverCommunicates) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    Both both = MakeBoth({.mesh = mesh});
    both.model->forward(Input());
    testing::CountingBackend& mesh_calls = testing::Count(mesh.get_group());
    testing::CountingBackend& calls = testing::Count(world_group());
    mesh_calls.Reset();
    calls.Reset();
    AveragedModel average(*both.model);
    average.update_parameters(*both.model);
    average.update_parameters(*both.model);
    { const AveragesScope scope(average, *both.model); }
    EXPECT_OK(average.load_state_dict(*average.state_dict()));
    EXPECT_EQ(mesh_calls.ToString() + calls.ToString(), "");
    both.model->forward(Input());
    EXPECT_NE(mesh_calls.ToString(), "");
  });
}

TEST(AveragedModel, TakesTheModelFirstAndCountsFromThere) {
  Pair model;
  AveragedModel average(*model, {.avg_fn = get_ema_avg_fn(0.9)});
  const torch::NoGradGuard no_grad;
  for (Tensor& parameter : model->parameters()) parameter.fill_(3);
  EXPECT_EQ(average.n_averaged(), 0);
  average.update_parameters(*model);
  for (Tensor& parameter : model->parameters()) parameter.fill_(5);
  average.update_parameters(*model);
  for (const auto& [name, value] : WholeAverages(average)) {
    const double wanted = name == "n_averaged" ? 2 : 0.9 * 3 + 0.1 * 5;
    EXPECT_TRUE(
        torch::allclose(value.to(torch::kDouble),
                        torch::full_like(value, wanted, torch::kDouble)))
        << name;
  }
}

TEST(AveragedModel, AveragesBuffersOnRequestOnly) {
  for (const bool use_buffers : {false, true}) {
    torch::nn::BatchNorm1d model(4);
    AveragedModel average(*model, {.use_buffers = use_buffers});
    const torch::NoGradGuard no_grad;
    for (const double value : {2.0, 4.0, 9.0}) {
      model->running_mean.fill_(value);
      average.update_parameters(*model);
    }
    const StateDict state = *average.state_dict();
    EXPECT_EQ((*state.find("module.running_mean")->get_if<Tensor>())[0]
                  .item<double>(),
              use_buffers ? 5 : 9);
  }
}

TEST(AveragedModel, ScopesKeepTheModelsBuffersApart) {
  torch::nn::BatchNorm1d model(4);
  AveragedModel average(*model);
  average.update_parameters(*model);
  const Tensor before = model->running_mean.clone();
  {
    const AveragesScope scope(average, *model);
    model->forward(torch::ones({8, 4}));  // changes the statistics
  }
  EXPECT_TRUE(torch::equal(model->running_mean, before));
  EXPECT_FALSE(torch::equal(
      *average.state_dict()->find("module.running_mean")->get_if<Tensor>(),
      before));
}

TEST(AveragedModel, AveragesATiedTensorOnce) {
  struct TiedImpl : Module {
    TiedImpl() {
      a = register_parameter("a", torch::ones({3}));
      register_parameter("b", a);
    }
    Tensor a;
  };
  TiedImpl model;
  AveragedModel average(model);
  EXPECT_EQ(average.num_bytes(), model.a.nbytes());
  average.update_parameters(model);
  { const AveragesScope scope(average, model); }
  EXPECT_TRUE(torch::equal(model.a, torch::ones({3})));
  EXPECT_EQ(average.state_dict()->size(), 3u);
}

TEST(AveragedModel, UpdatesAfterTheChosenSteps) {
  Pair model;
  AveragedModel average(*model, {.steps = {.first = 3, .last = 9, .every = 2}});
  std::vector<int64_t> taken;
  for (int64_t step = 1; step <= 12; ++step) {
    if (average.update_after_step(*model, step)) taken.push_back(step);
  }
  EXPECT_EQ(taken, (std::vector<int64_t>{3, 5, 7, 9}));
  EXPECT_EQ(average.n_averaged(), 4);
}

TEST(AveragedModel, RefusesBadNumbersByName) {
  for (const double decay : {-0.5, 1.5, std::nan("")}) {
    EXPECT_THAT(ThrownMessage([&] { get_ema_avg_fn(decay); }),
                HasSubstr("must be from 0 to 1"))
        << decay;
  }
  EXPECT_THAT(ThrownMessage([] { get_ema_avg_fn(1.5); }), HasSubstr("1.5"));
  Pair model;
  for (const auto& [steps, text] :
       {std::pair(AveragingSteps{.first = 0}, "the first step of an average"),
        std::pair(AveragingSteps{.first = 5, .last = 4}, "is before the first"),
        std::pair(AveragingSteps{.every = 0}, "every 0th step")}) {
    EXPECT_THAT(
        ThrownMessage([&] { AveragedModel average(*model, {.steps = steps}); }),
        HasSubstr(text));
  }
}

TEST(AveragedModel, RefusesAnotherModelOnEveryRank) {
  RunRanks(2, [] {
    StartRankInDouble();
    Both both = MakeBoth();
    AveragedModel average(*both.model);
    const Tensor before = average.state_dict()
                              ->find("module.a.weight")
                              ->get_if<DTensor>()
                              ->to_local()
                              .clone();
    torch::nn::Linear linear(6, 6);
    EXPECT_THAT(
        ThrownMessage([&] { average.update_parameters(*linear); }),
        AllOf(HasSubstr("the model has weight where"), HasSubstr("a.weight")));
    EXPECT_THAT(
        ThrownMessage([&] { average.update_parameters(*both.model->a); }),
        HasSubstr("the model has weight where the averages have"));
    // The same names, not sharded: the shapes of parts differ.
    EXPECT_THAT(
        ThrownMessage([&] { average.update_parameters(*both.reference); }),
        AllOf(HasSubstr("a.weight has shape [6, 6]"),
              HasSubstr("after fully_shard")));
    EXPECT_THAT(
        ThrownMessage([&] { AveragesScope scope(average, *both.reference); }),
        HasSubstr("after fully_shard"));
    EXPECT_EQ(average.n_averaged(), 0);
    EXPECT_TRUE(torch::equal(average.state_dict()
                                 ->find("module.a.weight")
                                 ->get_if<DTensor>()
                                 ->to_local(),
                             before));
    average.update_parameters(*both.model);
    EXPECT_EQ(average.n_averaged(), 1);
  });
}

TEST(AveragedModel, RefusesAModelWithFewerOrMoreTensors) {
  torch::nn::Linear with(2, 2);
  torch::nn::Linear without(torch::nn::LinearOptions(2, 2).bias(false));
  AveragedModel of_both(*with);
  AveragedModel of_one(*without);
  EXPECT_THAT(ThrownMessage([&] { of_both.update_parameters(*without); }),
              HasSubstr("the model does not have bias"));
  EXPECT_THAT(ThrownMessage([&] { of_one.update_parameters(*with); }),
              HasSubstr("the model has bias more than the averages"));
}

TEST(AveragedModel, RefusesChangesWithinAScope) {
  Pair model;
  AveragedModel average(*model);
  const StateDict state = *average.state_dict();
  {
    const AveragesScope scope(average, *model);
    EXPECT_THAT(ThrownMessage([&] { average.update_parameters(*model); }),
                HasSubstr("AveragesScope has put"));
    EXPECT_THAT(ThrownMessage([&] { AveragesScope nested(average, *model); }),
                HasSubstr("another scope"));
    EXPECT_THAT(average.state_dict().status(),
                StatusIs(absl::StatusCode::kFailedPrecondition));
    EXPECT_THAT(average.load_state_dict(state),
                StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  average.update_parameters(*model);
  EXPECT_OK(average.state_dict().status());
}

TEST(AveragedModel, RefusesAModelWithoutMemory) {
  const MetaDeviceGuard on_meta;
  torch::nn::Linear model(2, 2);
  EXPECT_THAT(ThrownMessage([&] { AveragedModel average(*model); }),
              HasSubstr("weight is on the meta device"));
}

}  // namespace
}  // namespace fsdp::optim
