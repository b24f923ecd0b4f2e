// SPDX-License-Identifier: Apache-2.0
// The code in fsdp/parallel/pipeline/README.md, literally (tests/style/tidy.py
// compares the parts between the marks), run on four ranks.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/parallel/pipeline/keep_modules.h"
#include "fsdp/parallel/pipeline/module_names.h"
#include "fsdp/parallel/pipeline/order/order_text.h"
#include "fsdp/parallel/pipeline/schedules.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/optim/adamw.h"
#include "torch/types.h"

namespace {

// [model]
struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t num_layers) {
    embed = register_module("embed", torch::nn::Embedding(100, 16));
    for (int64_t i = 0; i < num_layers; ++i) {
      layers->push_back(
          torch::nn::Sequential(torch::nn::Linear(16, 16), torch::nn::GELU()));
    }
    register_module("layers", layers);
    head = register_module("head", torch::nn::Linear(16, 100));
  }
  // Runs those of embed, layers and head that this stage has.
  torch::Tensor forward(const torch::Tensor& tokens) {
    torch::Tensor h = embed ? embed(tokens) : tokens;
    for (auto& layer : *layers) {
      h = layer->as<torch::nn::Sequential>()->forward(h);
    }
    return head ? head(h) : h;
  }
  torch::nn::Embedding embed{nullptr};
  torch::nn::ModuleList layers;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);
// [/model]

// Calls `report` on the last stage, with the mean of the microbatches' losses.
void Train(int64_t num_steps, const std::function<void(double)>& report) {
  // [train]
  const auto mesh = fsdp::init_device_mesh("cpu", {2, 2}, {"pp", "dp"});
  const size_t stage = mesh.get_local_rank("pp");

  torch::manual_seed(0);
  Net model(6);  // the whole; under fsdp::MetaDeviceGuard if it is large
  fsdp::keep_modules(*model,
                     fsdp::pipeline_module_names(
                         /*num_stages=*/2, /*num_layers=*/6,
                         {.inputs = {"embed"}, .outputs = {"head"}})[stage],
                     {&model->embed, &model->head});
  const fsdp::FullyShardOptions options{.mesh = mesh["dp"],
                                        .reshard_after_forward = false};
  for (auto& layer : *model->layers) fsdp::fully_shard(layer, options);
  fsdp::fully_shard(model, options);
  torch::optim::AdamW optimizer(model->parameters(), 1e-2);

  fsdp::Schedule1F1B schedule(
      fsdp::PipelineStage(model, mesh["pp"]), /*num_microbatches=*/4,
      [](const torch::Tensor& logits, const torch::Tensor& targets) {
        return torch::nn::functional::cross_entropy(logits.flatten(0, 1),
                                                    targets.flatten());
      });
  for (int64_t step = 0; step < num_steps; ++step) {
    // The ranks of one pipeline have the same rows.
    torch::manual_seed(mesh.get_local_rank("dp"));
    const torch::Tensor x = torch::randint(100, {8, 4});
    optimizer.zero_grad();
    fsdp::StageTensors losses;  // set on the last stage
    schedule.step({.args = {x}, .target = x, .losses = &losses});
    fsdp::clip_grad_norm_(fsdp::parameters(*model), /*max_norm=*/1.0,
                          /*norm_type=*/2.0, /*error_if_nonfinite=*/false,
                          mesh["pp"]);
    optimizer.step();
    if (!losses.empty()) report(torch::stack(losses).mean().item<double>());
  }
  // [/train]
}

Net MakeStage(int64_t stage, int64_t num_stages) {
  torch::manual_seed(0);
  Net model(6);
  fsdp::keep_modules(*model,
                     fsdp::pipeline_module_names(
                         num_stages, /*num_layers=*/6,
                         {.inputs = {"embed"}, .outputs = {"head"}})[stage],
                     {&model->embed, &model->head});
  return model;
}

void TrainInSeveralStages(const fsdp::DeviceMesh& mesh, const torch::Tensor& x,
                          const torch::Tensor& y) {
  const auto loss = [](const torch::Tensor& logits,
                       const torch::Tensor& targets) {
    return torch::nn::functional::cross_entropy(logits.flatten(0, 1),
                                                targets.flatten());
  };
  // [stages]
  const int64_t num_stages = 2 * mesh.size(), num_microbatches = 4;
  const fsdp::PipelineShape shape{mesh.size(), 2, num_microbatches};
  std::vector<fsdp::PipelineStage> stages;
  for (const int64_t stage : fsdp::StagesOnRank(
           fsdp::ScheduleKind::kZBVZeroBubble, shape, mesh.get_local_rank())) {
    Net part = MakeStage(stage, num_stages);  // keep_modules, as above
    stages.emplace_back(part, mesh, fsdp::StagePlace{stage, num_stages});
  }
  fsdp::ScheduleZBVZeroBubble schedule(stages, num_microbatches, loss);
  schedule.step({.args = {x}, .target = y});  // rank 0 has the first and last
  const std::string csv = fsdp::FormatOrderCsv(schedule.pipeline_order());
  const std::string svg =
      fsdp::FormatTimelineSvg(fsdp::MakeTimeline(schedule.pipeline_order()));
  // [/stages]
  EXPECT_EQ(fsdp::ParseOrderCsv(csv), schedule.pipeline_order());
  EXPECT_NE(svg.find("<svg "), std::string::npos);
  for (const fsdp::PipelineStage& stage : stages) {
    for (const torch::Tensor& parameter : stage.module()->parameters()) {
      EXPECT_TRUE(parameter.grad().defined());
    }
  }
}

TEST(PipelineReadme, TrainsInSeveralStages) {
  fsdp::testing::RunRanks(2, [] {
    fsdp::testing::StartRank();
    const torch::Tensor x = torch::randint(100, {8, 4});
    TrainInSeveralStages(fsdp::init_device_mesh("cpu", {2}, {"pp"}), x, x);
  });
}

TEST(PipelineReadme, Trains) {
  fsdp::testing::RunRanks(4, [] {
    fsdp::testing::StartRank();
    std::vector<double> losses;
    Train(30, [&losses](double loss) { losses.push_back(loss); });
    EXPECT_EQ(losses.size(), fsdp::get_rank() < 2 ? 0u : 30u);
    if (losses.empty()) return;
    EXPECT_GT(losses.front(), 4);
    EXPECT_LT(losses.back(), 3.5);
  });
}

}  // namespace
