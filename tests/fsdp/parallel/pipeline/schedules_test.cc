// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/schedules.h"

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/parallel/pipeline/staged_model.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/optim/adam.h"

namespace fsdp::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::Tensor;

constexpr int64_t kTestedLayers = 5;

DeviceMesh PipelineMesh() {
  return init_device_mesh("cpu", {get_world_size()}, {"pp"});
}

StagedModel MyModel() {
  return MakeStageModel(get_rank(), get_world_size(), kTestedLayers);
}

std::unique_ptr<PipelineSchedule> MakeTestedSchedule(
    ScheduleKind kind, const PipelineStage& stage, int64_t num_microbatches,
    LossFunction loss_fn = TokenLoss, const ScheduleOptions& options = {}) {
  if (kind == ScheduleKind::kGPipe) {
    return std::make_unique<ScheduleGPipe>(stage, num_microbatches, loss_fn,
                                           options);
  }
  return std::make_unique<Schedule1F1B>(stage, num_microbatches, loss_fn,
                                        options);
}

constexpr ScheduleKind kKinds[] = {ScheduleKind::kGPipe, ScheduleKind::k1F1B};

// This stage's gradients are equal to those for the same parameters in `whole`.
void ExpectSameGradients(const StagedModel& model, const StagedModel& whole,
                         const std::string& text) {
  const auto expected = whole->named_parameters();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << text << item.key();
    EXPECT_TRUE(torch::allclose(item.value().grad(),
                                expected[item.key()].grad(), 1e-10, 1e-12))
        << text << item.key();
  }
}

bool IsLast() { return get_rank() == get_world_size() - 1; }

// ---- Training --------------------------------------------------------------

TEST(Schedules, GradientsMatchTheWholeModel) {
  RunRanks(3, [] {
    StartRankInDouble();
    const DeviceMesh mesh = PipelineMesh();
    const Tensor x = Tokens(0, 24), y = Tokens(1, 24);
    for (const ScheduleKind kind : kKinds) {
      for (const int64_t num_microbatches : {3, 4, 8}) {
        const std::string text =
            std::string(ScheduleName(kind)) + std::to_string(num_microbatches);
        StagedModel whole = WholeModel(kTestedLayers), model = MyModel();
        const Tensor expected = whole(x);
        TokenLoss(expected, y).backward();
        StageTensors losses;
        const Tensor output =
            MakeTestedSchedule(kind, PipelineStage(model, mesh),
                               num_microbatches)
                ->step({.args = {x}, .target = y, .losses = &losses});
        ExpectSameGradients(model, whole, text);
        EXPECT_EQ(output.defined(), IsLast());
        if (!IsLast()) {
          EXPECT_TRUE(losses.empty());
          continue;
        }
        EXPECT_TRUE(torch::allclose(output, expected)) << text;
        EXPECT_FALSE(output.requires_grad());
        ASSERT_EQ(losses.size(), static_cast<size_t>(num_microbatches));
        EXPECT_FALSE(losses[0].requires_grad());
        EXPECT_NEAR(torch::stack(losses).mean().item<double>(),
                    TokenLoss(expected, y).item<double>(), 1e-12);
      }
    }
  });
}

TEST(Schedules, TrainsAsTheWholeModelOverSeveralSteps) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh mesh = PipelineMesh();
    for (const ScheduleKind kind : kKinds) {
      StagedModel whole = WholeModel(kTestedLayers), model = MyModel();
      const auto schedule =
          MakeTestedSchedule(kind, PipelineStage(model, mesh), 2);
      torch::optim::Adam optimizer(model->parameters(), 0.05);
      torch::optim::Adam expected(whole->parameters(), 0.05);
      for (int64_t step = 0; step < 4; ++step) {
        // Sizes change from one step to the next.
        const Tensor x = Tokens(step, 4 + 2 * step);
        const Tensor y = Tokens(9 + step, 4 + 2 * step);
        expected.zero_grad();
        optimizer.zero_grad();
        TokenLoss(whole(x), y).backward();
        schedule->step({.args = {x}, .target = y});
        ExpectSameGradients(model, whole, "");
        expected.step();
        optimizer.step();
      }
    }
  });
}

TEST(Schedules, ASumOfLossesIsNotScaled) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh mesh = PipelineMesh();
    const Tensor x = Tokens(0, 6), y = Tokens(1, 6);
    const auto sum = [](const Tensor& output, const Tensor& target) {
      return TokenLoss(output, target) * static_cast<double>(output.size(0));
    };
    StagedModel whole = WholeModel(kTestedLayers), model = MyModel();
    sum(whole(x), y).backward();
    MakeTestedSchedule(ScheduleKind::k1F1B, PipelineStage(model, mesh), 3, sum,
                       {.scale_grads = false})
        ->step({.args = {x}, .target = y});
    ExpectSameGradients(model, whole, "");
  });
}

TEST(Schedules, GradientsOfSeveralStepsAddUp) {
  RunRanks(2, [] {
    StartRankInDouble();
    StagedModel whole = WholeModel(kTestedLayers), model = MyModel();
    const auto schedule = MakeTestedSchedule(
        ScheduleKind::kGPipe, PipelineStage(model, PipelineMesh()), 3);
    for (int64_t step = 0; step < 3; ++step) {
      const Tensor x = Tokens(step, 6), y = Tokens(9 + step, 6);
      TokenLoss(whole(x), y).backward();
      schedule->step({.args = {x}, .target = y});
    }
    ExpectSameGradients(model, whole, "");
  });
}

TEST(Schedules, EvaluationIsForwardOnly) {
  RunRanks(3, [] {
    StartRankInDouble();
    StagedModel whole = WholeModel(kTestedLayers), model = MyModel();
    const auto schedule = MakeTestedSchedule(
        ScheduleKind::k1F1B, PipelineStage(model, PipelineMesh()), 3);
    const Tensor x = Tokens(0, 9), y = Tokens(1, 9);
    for (const int64_t rows : {9, 3}) {
      StageTensors losses;
      const Tensor output = schedule->eval({.args = {x.narrow(0, 0, rows)},
                                            .target = y.narrow(0, 0, rows),
                                            .losses = &losses});
      for (const Tensor& parameter : model->parameters()) {
        EXPECT_FALSE(parameter.grad().defined());
      }
      EXPECT_EQ(losses.size(), IsLast() ? 3u : 0u);
      if (IsLast()) {
        EXPECT_TRUE(torch::allclose(output, whole(x.narrow(0, 0, rows))));
      }
    }
    // Without a target there are no losses, and outputs may be dropped.
    EXPECT_FALSE(
        schedule->eval({.args = {x}, .return_outputs = false}).defined());
    // Training goes on.
    TokenLoss(whole(x), y).backward();
    schedule->step({.args = {x}, .target = y});
    ExpectSameGradients(model, whole, "");
  });
}

TEST(Schedules, OneStageIsAnOrdinaryModel) {
  RunRanks(1, [] {
    StartRankInDouble();
    const Tensor x = Tokens(0, 8), y = Tokens(1, 8);
    StagedModel whole = WholeModel(kTestedLayers), model = MyModel();
    TokenLoss(whole(x), y).backward();
    StageTensors losses;
    MakeTestedSchedule(ScheduleKind::k1F1B,
                       PipelineStage(model, PipelineMesh()), 4)
        ->step({.args = {x}, .target = y, .losses = &losses});
    ExpectSameGradients(model, whole, "");
    EXPECT_EQ(losses.size(), 4u);
  });
}

// ---- Tensors between stages ------------------------------------------------

// Returns the activation, mask and scale that it got, and an unused tensor.
struct SplitterImpl : torch::nn::Module {
  SplitterImpl() : linear(register_module("linear", torch::nn::Linear(3, 3))) {}
  std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& x,
                                             const Tensor& mask) {
    const Tensor h = linear(x);
    return {h.t().contiguous().t(), mask, h.sum(-1).to(torch::kFloat)};
  }
  torch::nn::Linear linear;
};
TORCH_MODULE(Splitter);

struct JoinerImpl : torch::nn::Module {
  JoinerImpl() : linear(register_module("linear", torch::nn::Linear(3, 2))) {}
  Tensor forward(const Tensor& x, const Tensor& mask, const Tensor& /*sum*/) {
    return linear(x * mask.unsqueeze(-1));
  }
  torch::nn::Linear linear;
};
TORCH_MODULE(Joiner);

Tensor SquareLoss(const Tensor& output, const Tensor& target) {
  return (output - target).square().mean();
}

// Tensors with other dtypes, not contiguous, without gradients, and unused.
TEST(Schedules, StagesPassSeveralTensors) {
  RunRanks(2, [] {
    StartRankInDouble();
    torch::manual_seed(3);
    Splitter splitter;
    Joiner joiner;
    const Tensor x = torch::randn({4, 3}), y = torch::randn({4, 2});
    const Tensor mask = torch::randint(0, 2, {4}, torch::kLong);
    const DeviceMesh mesh = PipelineMesh();
    const PipelineStage stage = get_rank() == 0 ? PipelineStage(splitter, mesh)
                                                : PipelineStage(joiner, mesh);
    MakeTestedSchedule(ScheduleKind::k1F1B, stage, 2, SquareLoss)
        ->step({.args = {x, mask}, .target = y});
    const Tensor grad = get_rank() == 0 ? splitter->linear->weight.grad()
                                        : joiner->linear->weight.grad();
    splitter->zero_grad();
    joiner->zero_grad();
    const auto [h, m, s] = splitter(x, mask);
    SquareLoss(joiner(h, m, s), y).backward();
    EXPECT_TRUE(torch::allclose(grad, get_rank() == 0
                                          ? splitter->linear->weight.grad()
                                          : joiner->linear->weight.grad()));
  });
}

TEST(Schedules, FrozenStagesGetNoGradients) {
  // The frozen ones among three stages; those in front of them may train.
  for (const std::vector<int64_t>& frozen :
       std::vector<std::vector<int64_t>>{{0}, {0, 1}, {1}, {2}}) {
    RunRanks(3, [frozen] {
      StartRankInDouble();
      StagedModel whole = WholeModel(kTestedLayers), model = MyModel();
      for (const int64_t stage : frozen) {
        const StagedModel part = MakeStageModel(stage, 3, kTestedLayers);
        for (const auto& item : part->named_parameters()) {
          whole->named_parameters()[item.key()].set_requires_grad(false);
          if (get_rank() != stage) continue;
          model->named_parameters()[item.key()].set_requires_grad(false);
        }
      }
      const Tensor x = Tokens(0, 6), y = Tokens(1, 6);
      TokenLoss(whole(x), y).backward();
      MakeTestedSchedule(ScheduleKind::k1F1B,
                         PipelineStage(model, PipelineMesh()), 3)
          ->step({.args = {x}, .target = y});
      for (const auto& item : model->named_parameters()) {
        const Tensor expected = whole->named_parameters()[item.key()].grad();
        ASSERT_EQ(item.value().grad().defined(), expected.defined())
            << item.key();
        if (!expected.defined()) continue;
        EXPECT_TRUE(torch::allclose(item.value().grad(), expected));
      }
    });
  }
}

// A function that calls the module in another way, and keeps inputs itself.
TEST(Schedules, AFunctionMayCallTheModule) {
  RunRanks(2, [] {
    StartRankInDouble();
    StagedModel whole = WholeModel(kTestedLayers), model = MyModel();
    const auto forward = [model](const StageTensors& in) mutable {
      return StageTensors{model(in.at(0)) * (model->head ? 1.0 : 2.0)};
    };
    const Tensor x = Tokens(0, 4), y = Tokens(1, 4);
    MakeTestedSchedule(ScheduleKind::kGPipe,
                       PipelineStage(model.ptr(), forward, PipelineMesh()), 2)
        ->step({.args = {x}, .target = y});
    StagedModel first = MakeStageModel(0, 2, kTestedLayers);
    StagedModel second = MakeStageModel(1, 2, kTestedLayers);
    TokenLoss(second(first(x) * 2.0), y).backward();
    ExpectSameGradients(model, get_rank() == 0 ? first : second, "");
  });
}

}  // namespace
}  // namespace fsdp::testing
