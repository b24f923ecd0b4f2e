// SPDX-License-Identifier: Apache-2.0
// Pipelines with sharded stages: two stages on two ranks each, which see their
// own half of each batch.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/parallel/pipeline/schedules.h"
#include "fsdp/report.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/pipeline/staged_model.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/optim/adam.h"

namespace fsdp::testing {
namespace {

using torch::Tensor;

constexpr int64_t kLayers = 8;
constexpr int64_t kMicrobatches = 4;
constexpr int64_t kRows = 16;

struct Batch {
  Tensor x, y;  // on all ranks
  // This rank's half.
  PipelineBatch Mine(const DeviceMesh& mesh) const {
    const int64_t half = mesh.get_local_rank("dp");
    return {.args = {x.chunk(2)[half]}, .target = y.chunk(2)[half]};
  }
};

Batch MakeBatch(int64_t step) {
  return {.x = Tokens(step, kRows), .y = Tokens(50 + step, kRows)};
}

// With `reshards` the root takes the modules outside the layers; otherwise
// these are separate groups, as in TorchTitan.
StagedModel ShardedStage(const DeviceMesh& mesh, bool reshards) {
  StagedModel model = MakeStageModel(mesh.get_local_rank("pp"), 2, kLayers);
  const FullyShardOptions options{.mesh = mesh["dp"],
                                  .reshard_after_forward = reshards};
  for (const auto& layer : *model->layers) fully_shard(layer, options);
  if (!reshards && model->embed) fully_shard(model->embed, options);
  if (!reshards && model->head) {
    fully_shard({model->norm, model->head}, options);
  }
  fully_shard(model, options);
  return model;
}

DeviceMesh TwoByTwo() { return init_device_mesh("cpu", {2, 2}, {"pp", "dp"}); }

std::unique_ptr<PipelineSchedule> MakeSchedule(ScheduleKind kind,
                                               const StagedModel& model,
                                               const DeviceMesh& mesh) {
  const PipelineStage stage(model, mesh["pp"]);
  if (kind == ScheduleKind::kGPipe) {
    return std::make_unique<ScheduleGPipe>(stage, kMicrobatches, TokenLoss);
  }
  return std::make_unique<Schedule1F1B>(stage, kMicrobatches, TokenLoss);
}

// The gradients for the mean of all rows' losses, which the ranks average.
void ExpectGradients(const StagedModel& model, const StagedModel& whole,
                     const std::string& text) {
  const auto expected = whole->named_parameters();
  for (const auto& [name, parameter] : named_parameters(*model)) {
    ASSERT_TRUE(parameter.grad().has_value()) << text << name;
    EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                expected[name].grad(), 1e-10, 1e-12))
        << text << name;
  }
}

TEST(PipelineFsdp, GradientsMatchTheAveragedReference) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = TwoByTwo();
    for (const ScheduleKind kind :
         {ScheduleKind::kGPipe, ScheduleKind::k1F1B}) {
      for (const bool reshard : {false, true}) {
        const std::string text =
            std::string(ScheduleName(kind)) + (reshard ? ", reshards: " : ": ");
        StagedModel whole = WholeModel(kLayers);
        StagedModel model = ShardedStage(mesh, reshard);
        const auto schedule = MakeSchedule(kind, model, mesh);
        // The layers, and one more.
        const auto num_groups = static_cast<int64_t>(model->layers->size()) + 1;
        for (int64_t step = 0; step < 2; ++step) {
          const Batch batch = MakeBatch(step);
          whole->zero_grad();
          model->zero_grad();
          TokenLoss(whole(batch.x), batch.y).backward();
          reset_step_report(*model);
          schedule->step(batch.Mine(mesh));
          ExpectGradients(model, whole, text);
          const StepReport report = step_report(*model);
          // One reduction in each group, and with nothing resharded one gather.
          EXPECT_EQ(report.num_reduce_scatters, num_groups) << text;
          if (!reshard) {
            EXPECT_EQ(report.num_all_gathers, num_groups) << text;
          }
          EXPECT_EQ(report.unsharded_bytes, 0u) << text;
        }
      }
    }
  });
}

TEST(PipelineFsdp, TrainsAsOneProcess) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = TwoByTwo();
    StagedModel whole = WholeModel(kLayers);
    StagedModel model = ShardedStage(mesh, true);
    const auto schedule = MakeSchedule(ScheduleKind::k1F1B, model, mesh);
    torch::optim::Adam expected(whole->parameters(), 0.05);
    torch::optim::Adam optimizer(model->parameters(), 0.05);
    for (int64_t step = 0; step < 5; ++step) {
      const Batch batch = MakeBatch(step);
      expected.zero_grad();
      optimizer.zero_grad();
      TokenLoss(whole(batch.x), batch.y).backward();
      schedule->step(batch.Mine(mesh));
      const double norm =
          torch::nn::utils::clip_grad_norm_(whole->parameters(), 0.1);
      EXPECT_NEAR(
          clip_grad_norm_(parameters(*model), 0.1, 2.0, false, mesh["pp"])
              .item<double>(),
          norm, 1e-10);
      expected.step();
      optimizer.step();
      // Evaluation between steps changes nothing.
      const Tensor output = schedule->eval(batch.Mine(mesh));
      if (output.defined()) {
        const torch::NoGradGuard no_grad;
        EXPECT_TRUE(torch::allclose(
            output, whole(batch.x).chunk(2)[mesh.get_local_rank("dp")], 1e-6));
      }
    }
    for (const auto& [name, parameter] : named_parameters(*model)) {
      EXPECT_TRUE(torch::allclose(parameter.full_tensor(),
                                  whole->named_parameters()[name], 1e-6, 1e-9))
          << name;
    }
  });
}

// Gradients from two batches; only the second is reduced.
TEST(PipelineFsdp, KeepsTheUsersSettings) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = TwoByTwo();
    StagedModel whole = WholeModel(kLayers);
    StagedModel model = ShardedStage(mesh, true);
    const auto schedule = MakeSchedule(ScheduleKind::kGPipe, model, mesh);
    const FSDPModule root = get_fsdp_module(*model);
    const Batch first = MakeBatch(0), second = MakeBatch(1);
    TokenLoss(whole(first.x), first.y).backward();
    TokenLoss(whole(second.x), second.y).backward();
    reset_step_report(*model);
    {
      const NoSync no_sync(root);
      schedule->step(first.Mine(mesh));
    }
    EXPECT_EQ(step_report(*model).num_reduce_scatters, 0);
    schedule->step(second.Mine(mesh));
    ExpectGradients(model, whole, "");
  });
}

// Layers that are separate roots, in one communication context.
TEST(PipelineFsdp, SeveralRootsShareACommContext) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh = TwoByTwo();
    for (const ScheduleKind kind :
         {ScheduleKind::kGPipe, ScheduleKind::k1F1B}) {
      StagedModel whole = WholeModel(kLayers);
      StagedModel model = MakeStageModel(mesh.get_local_rank("pp"), 2, kLayers);
      std::vector<FSDPModule> roots;
      for (const auto& child : model->layers->children()) {
        roots.push_back(fully_shard(child, {.mesh = mesh["dp"]}));
      }
      for (const auto& child : model->children()) {
        if (child == model->layers.ptr()) continue;
        roots.push_back(fully_shard(child, {.mesh = mesh["dp"]}));
      }
      share_comm_ctx(roots);
      const auto schedule = MakeSchedule(kind, model, mesh);
      for (int64_t step = 0; step < 2; ++step) {
        const Batch batch = MakeBatch(step);
        whole->zero_grad();
        model->zero_grad();
        TokenLoss(whole(batch.x), batch.y).backward();
        reset_step_report(*model->layers->children()[0]);
        schedule->step(batch.Mine(mesh));
        ExpectGradients(model, whole, ScheduleName(kind));
        EXPECT_EQ(
            step_report(*model->layers->children()[0]).num_reduce_scatters,
            static_cast<int64_t>(roots.size()));
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::testing
