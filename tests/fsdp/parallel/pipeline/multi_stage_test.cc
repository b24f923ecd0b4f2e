// SPDX-License-Identifier: Apache-2.0
// Schedules with several stages on a rank, whole and split backwards.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/parallel/pipeline/order/order_text.h"
#include "fsdp/parallel/pipeline/schedules.h"
#include "fsdp/report.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/pipeline/staged_model.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"

namespace fsdp::testing {
namespace {

using torch::Tensor;

constexpr int64_t kManyLayers = 12;
constexpr ScheduleKind kMultiKinds[] = {
    ScheduleKind::kInterleaved1F1B, ScheduleKind::kInterleavedZeroBubble,
    ScheduleKind::kZBVZeroBubble, ScheduleKind::kDualPipeV};

// This rank's stages.
struct LocalStages {
  std::vector<StagedModel> models;
  std::vector<PipelineStage> stages;
};

LocalStages MakeLocalStages(
    ScheduleKind kind, const PipelineShape& shape, const DeviceMesh& pp,
    const std::function<void(StagedModel&)>& prepare = [](StagedModel&) {}) {
  LocalStages local;
  for (const int64_t stage : StagesOnRank(kind, shape, pp.get_local_rank())) {
    local.models.push_back(
        MakeStageModel(stage, shape.num_stages(), kManyLayers));
    prepare(local.models.back());
    local.stages.emplace_back(local.models.back(), pp,
                              StagePlace{stage, shape.num_stages()});
  }
  return local;
}

void ExpectGradientsOf(const LocalStages& local, const StagedModel& whole,
                       const std::string& text) {
  const auto expected = whole->named_parameters();
  for (const StagedModel& model : local.models) {
    for (const auto& [name, parameter] : named_parameters(*model)) {
      ASSERT_TRUE(parameter.grad().has_value()) << text << name;
      EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                  expected[name].grad(), 1e-10, 1e-12))
          << text << name;
    }
  }
}

// A reference to the whole model's step, and the schedule's, twice.
void ExpectTrainsAsOneProcess(const PipelineShape& shape, ScheduleKind kind,
                              const DeviceMesh& mesh) {
  const std::string text = std::string(ScheduleName(kind)) + " " +
                           std::to_string(shape.num_microbatches) + ": ";
  StagedModel whole = WholeModel(kManyLayers);
  const LocalStages local = MakeLocalStages(kind, shape, mesh);
  const auto schedule =
      MakeSchedule(kind, local.stages, shape.num_microbatches, TokenLoss);
  for (int64_t step = 0; step < 2; ++step) {
    const int64_t rows = shape.num_microbatches * (1 + step);
    const Tensor x = Tokens(step, rows), y = Tokens(9 + step, rows);
    const Tensor expected = whole(x);
    TokenLoss(expected, y).backward();  // gradients add up
    StageTensors losses;
    const Tensor output =
        schedule->step({.args = {x}, .target = y, .losses = &losses});
    for (const StagedModel& model : local.models) {
      for (const auto& item : model->named_parameters()) {
        ASSERT_TRUE(item.value().grad().defined()) << text << item.key();
        EXPECT_TRUE(torch::allclose(
            item.value().grad(), whole->named_parameters()[item.key()].grad(),
            1e-10, 1e-12))
            << text << item.key();
      }
    }
    const bool has_last = local.stages.back().is_last();
    EXPECT_EQ(output.defined(), has_last) << text;
    EXPECT_EQ(losses.size(),
              has_last ? static_cast<size_t>(shape.num_microbatches) : 0u);
    if (has_last) {
      EXPECT_TRUE(torch::allclose(output, expected)) << text;
      EXPECT_NEAR(torch::stack(losses).mean().item<double>(),
                  TokenLoss(expected, y).item<double>(), 1e-12);
    }
    const Tensor evaluated = schedule->eval({.args = {x}});
    EXPECT_EQ(evaluated.defined(), has_last) << text;
    if (has_last) EXPECT_TRUE(torch::allclose(evaluated, expected)) << text;
  }
}

TEST(MultiStage, TrainsAsOneProcess) {
  for (const int ranks : {1, 2, 4}) {
    RunRanks(ranks, [ranks] {
      StartRankInDouble();
      const DeviceMesh mesh = init_device_mesh("cpu", {ranks}, {"pp"});
      for (const ScheduleKind kind : kMultiKinds) {
        for (const int64_t num_microbatches : {2 * ranks, 4 * ranks}) {
          ExpectTrainsAsOneProcess({ranks, 2, num_microbatches}, kind, mesh);
        }
        if (IsVSchedule(kind)) continue;
        ExpectTrainsAsOneProcess({ranks, 3, 2 * ranks}, kind, mesh);
      }
      // Fewer microbatches than fill the V.
      ExpectTrainsAsOneProcess({ranks, 2, 1}, ScheduleKind::kZBVZeroBubble,
                               mesh);
    });
  }
}

// One stage on each rank, with split backwards.
TEST(MultiStage, ZeroBubbleTakesOneStageARank) {
  RunRanks(3, [] {
    StartRankInDouble();
    ExpectTrainsAsOneProcess({3, 1, 6}, ScheduleKind::kInterleavedZeroBubble,
                             init_device_mesh("cpu", {3}, {"pp"}));
  });
}

// An order from a file: the stages of a rank are next to each other, and the
// microbatches go back in the other order.
TEST(MultiStage, RunsAnOrderFromAFile) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"pp"});
    const PipelineOrder order = ParseOrderCsv(
        "0F0,1F0,0F1,1F1,1I1,0I1,1B0,0B0,0W1,1W1\n"
        ",,2F0,3F0,2F1,3F1,3B1,2B1,3I0,2B0,3W0\n");
    StagedModel whole = WholeModel(kManyLayers);
    LocalStages local;
    for (const int64_t stage : {2 * get_rank(), 2 * get_rank() + 1}) {
      local.models.push_back(MakeStageModel(stage, 4, kManyLayers));
      local.stages.emplace_back(local.models.back(), mesh,
                                StagePlace{stage, 4});
    }
    ScheduleFromOrder schedule(local.stages, order, TokenLoss);
    EXPECT_EQ(schedule.pipeline_order(), order);
    const Tensor x = Tokens(0, 4), y = Tokens(1, 4);
    TokenLoss(whole(x), y).backward();
    schedule.step({.args = {x}, .target = y});
    for (const StagedModel& model : local.models) {
      for (const auto& item : model->named_parameters()) {
        EXPECT_TRUE(torch::allclose(
            item.value().grad(), whole->named_parameters()[item.key()].grad()))
            << item.key();
      }
    }
  });
}

TEST(MultiStage, FrozenStagesGetNoGradients) {
  RunRanks(2, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"pp"});
    for (const ScheduleKind kind : kMultiKinds) {
      for (const int64_t num_frozen : {1, 2}) {
        const PipelineShape shape{2, 2, 4};
        StagedModel whole = WholeModel(kManyLayers);
        const LocalStages local = MakeLocalStages(kind, shape, mesh);
        for (int64_t stage = 0; stage < num_frozen; ++stage) {
          const StagedModel part = MakeStageModel(stage, 4, kManyLayers);
          for (const std::string& name : part->named_parameters().keys()) {
            whole->named_parameters()[name].set_requires_grad(false);
            for (const StagedModel& model : local.models) {
              auto parameters = model->named_parameters();
              Tensor* mine = parameters.find(name);
              if (mine != nullptr) mine->set_requires_grad(false);
            }
          }
        }
        const Tensor x = Tokens(0, 4), y = Tokens(1, 4);
        TokenLoss(whole(x), y).backward();
        MakeSchedule(kind, local.stages, 4, TokenLoss)
            ->step({.args = {x}, .target = y});
        for (const StagedModel& model : local.models) {
          for (const auto& item : model->named_parameters()) {
            const Tensor expected =
                whole->named_parameters()[item.key()].grad();
            ASSERT_EQ(item.value().grad().defined(), expected.defined())
                << ScheduleName(kind) << item.key();
            if (!expected.defined()) continue;
            EXPECT_TRUE(torch::allclose(item.value().grad(), expected));
          }
        }
      }
    }
  });
}

// ---- With fully_shard ------------------------------------------------------

void ShardStage(StagedModel& model, const DeviceMesh& dp, bool reshards) {
  const FullyShardOptions options{.mesh = dp,
                                  .reshard_after_forward = reshards};
  for (const auto& layer : *model->layers) fully_shard(layer, options);
  if (model->embed) fully_shard(model->embed, options);
  if (model->head) fully_shard({model->norm, model->head}, options);
  fully_shard(model, options);
}

TEST(MultiStage, ReducesOnceAStepUnderFullyShard) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"pp", "dp"});
    const int64_t half = mesh.get_local_rank("dp");
    const PipelineShape shape{2, 2, 4};
    for (const ScheduleKind kind : kMultiKinds) {
      for (const bool reshards : {false, true}) {
        const std::string text = std::string(ScheduleName(kind)) +
                                 (reshards ? ", reshards: " : ": ");
        StagedModel whole = WholeModel(kManyLayers);
        const LocalStages local =
            MakeLocalStages(kind, shape, mesh["pp"], [&](StagedModel& model) {
              ShardStage(model, mesh["dp"], reshards);
            });
        const auto schedule = MakeSchedule(kind, local.stages, 4, TokenLoss);
        for (int64_t step = 0; step < 2; ++step) {
          const Tensor x = Tokens(step, 16), y = Tokens(50 + step, 16);
          whole->zero_grad();
          TokenLoss(whole(x), y).backward();
          for (StagedModel model : local.models) {
            model->zero_grad();
            reset_step_report(*model);
          }
          schedule->step(
              {.args = {x.chunk(2)[half]}, .target = y.chunk(2)[half]});
          ExpectGradientsOf(local, whole, text);
          for (const StagedModel& model : local.models) {
            // The layers, and embedding or head.
            const auto num_groups =
                static_cast<int64_t>(model->layers->size()) +
                (model->embed || model->head ? 1 : 0);
            const StepReport report = step_report(*model);
            EXPECT_EQ(report.num_reduce_scatters, num_groups) << text;
            if (!reshards) {
              EXPECT_EQ(report.num_all_gathers, num_groups) << text;
            }
            EXPECT_EQ(report.unsharded_bytes, 0u) << text;
          }
        }
      }
    }
  });
}

// Calls the model's layers, each in a checkpoint.
TEST(MultiStage, RecomputesUnderFullyShard) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"pp", "dp"});
    const int64_t half = mesh.get_local_rank("dp");
    for (const ScheduleKind kind : kMultiKinds) {
      StagedModel whole = WholeModel(kManyLayers);
      LocalStages local = MakeLocalStages(
          kind, {2, 2, 4}, mesh["pp"],
          [&](StagedModel& model) { ShardStage(model, mesh["dp"], true); });
      std::vector<PipelineStage> stages;
      for (size_t i = 0; i < local.models.size(); ++i) {
        StagedModel model = local.models[i];
        const auto forward = [model](const StageTensors& in) mutable {
          Tensor h = model->embed ? model->embed(in[0]) : in[0];
          h = checkpoint(
              [model](Tensor t) {
                for (const auto& layer : *model->layers) {
                  t = layer->as<StagedLayer>()->forward(t);
                }
                return t;
              },
              h);
          return StageTensors{model->head ? model->head(model->norm(h)) : h};
        };
        const PipelineStage& stage = local.stages[i];
        stages.emplace_back(
            model.ptr(), forward, mesh["pp"],
            StagePlace{stage.stage_index(), stage.num_stages()});
      }
      const auto schedule = MakeSchedule(kind, stages, 4, TokenLoss);
      const Tensor x = Tokens(0, 16), y = Tokens(1, 16);
      TokenLoss(whole(x), y).backward();
      for (const StagedModel& model : local.models) reset_step_report(*model);
      schedule->step({.args = {x.chunk(2)[half]}, .target = y.chunk(2)[half]});
      ExpectGradientsOf(local, whole, ScheduleName(kind));
    }
  });
}

}  // namespace
}  // namespace fsdp::testing
