// SPDX-License-Identifier: Apache-2.0
// Trains the model in staged_model.h in stages, each sharded over the remaining
// ranks, for pipeline_parity_test.py.

#include <cstdint>
#include <fstream>
#include <iostream>
#include <limits>
#include <string>
#include <utility>

#include "ATen/Parallel.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/parallel/pipeline/schedules.h"
#include "tests/fsdp/parallel/pipeline/staged_model.h"
#include "torch/optim/adamw.h"
#include "torch/utils.h"

namespace fsdp::testing {
namespace {

constexpr int64_t kLayers = 6;
constexpr int64_t kRows = 16;
constexpr int64_t kMicrobatches = 4;
constexpr double kMaxNorm = 0.5;

const StateDictOptions kFlat{.flatten_optimizer_state_dict = true};

StateDict TrainingState(StagedModel& model, torch::optim::AdamW& optimizer) {
  auto parts = get_state_dict(*model, optimizer, kFlat);
  ThrowIfError(parts.status());
  return {{"model", std::move(parts->first)},
          {"optim", std::move(parts->second)}};
}

void Load(const std::string& path, StagedModel& model,
          torch::optim::AdamW& optimizer) {
  StateDict state = TrainingState(model, optimizer);
  ThrowIfError(load(state, path));
  ThrowIfError(set_state_dict(*model, optimizer,
                              *state["model"].get_if<StateDict>(),
                              *state["optim"].get_if<StateDict>(), kFlat)
                   .status());
}

StagedModel ShardedStage(const DeviceMesh& mesh) {
  StagedModel model =
      MakeStageModel(mesh.get_local_rank("pp"), mesh.size(0), kLayers);
  const FullyShardOptions options{.mesh = mesh["dp"],
                                  .reshard_after_forward = false};
  for (const auto& layer : *model->layers) fully_shard(layer, options);
  fully_shard(model, options);
  return model;
}

// The whole batch's loss, on every rank.
double Step(PipelineSchedule& schedule, const DeviceMesh& mesh, int64_t step) {
  const auto mine = [&](const torch::Tensor& rows) {
    return rows.chunk(mesh.size(1))[mesh.get_local_rank("dp")];
  };
  StageTensors losses;
  schedule.step({.args = {mine(Tokens(step, kRows))},
                 .target = mine(Tokens(50 + step, kRows)),
                 .losses = &losses});
  torch::Tensor loss = losses.empty() ? torch::zeros({1})
                                      : torch::stack(losses).mean().view({1});
  AllReduce(loss, ReduceOp::kSum, world_group());
  return loss.item<double>() / static_cast<double>(mesh.size(1));
}

void Run(int64_t pp, int64_t first_step, int64_t last_step,
         const std::string& load_path, const std::string& save_path,
         const std::string& out) {
  at::set_num_threads(1);
  torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
  init_process_group();
  const DeviceMesh mesh =
      init_device_mesh("cpu", {pp, get_world_size() / pp}, {"pp", "dp"});
  StagedModel model = ShardedStage(mesh);
  torch::optim::AdamW optimizer(
      model->parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
  if (load_path != "-") Load(load_path, model, optimizer);
  Schedule1F1B schedule(PipelineStage(model, mesh["pp"]), kMicrobatches,
                        TokenLoss);
  std::ofstream numbers(out);
  numbers.precision(std::numeric_limits<double>::max_digits10);
  for (int64_t step = first_step; step < last_step; ++step) {
    optimizer.zero_grad();
    const double loss = Step(schedule, mesh, step);
    const torch::Tensor norm =
        clip_grad_norm_(parameters(*model), kMaxNorm, 2.0, false, mesh["pp"]);
    numbers << loss << " " << norm.item<double>() << "\n";
    optimizer.step();
  }
  if (save_path != "-") {
    ThrowIfError(save(TrainingState(model, optimizer), save_path));
  }
  destroy_process_group();
}

}  // namespace
}  // namespace fsdp::testing

int main(int argc, char** argv) {
  if (argc != 7) {
    std::cerr << "pipeline_trainer PP FIRST_STEP LAST_STEP LOAD SAVE OUT\n";
    return 2;
  }
  fsdp::testing::Run(std::stoll(argv[1]), std::stoll(argv[2]),
                     std::stoll(argv[3]), argv[4], argv[5], argv[6]);
}
