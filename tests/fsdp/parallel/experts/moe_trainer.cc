// SPDX-License-Identifier: Apache-2.0
// Trains the tiny mixture of experts in tiny_moe.h for a few steps, on as many
// ranks as there are, saves and resumes it as a user would, and writes this
// rank's view of the losses.
//
//   moe_trainer EP FIRST_STEP LAST_STEP LOAD SAVE OUT     LOAD, SAVE: or "-"

#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <string>

#include "ATen/Parallel.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/mesh/parallel_dims.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "tests/fsdp/parallel/experts/tiny_moe.h"
#include "torch/optim/adamw.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

StateDict TrainingState(TinyMoE& model, torch::optim::AdamW& optimizer) {
  auto parts = get_state_dict(*model, optimizer);
  ThrowIfError(parts.status());
  return {{"model", std::move(parts->first)},
          {"optim", std::move(parts->second)}};
}

void Load(const std::string& path, TinyMoE& model,
          torch::optim::AdamW& optimizer) {
  StateDict state = TrainingState(model, optimizer);
  ThrowIfError(load(state, path));
  ThrowIfError(set_state_dict(*model, optimizer,
                              *state["model"].get_if<StateDict>(),
                              *state["optim"].get_if<StateDict>())
                   .status());
}

void Run(int64_t ep, int64_t first_step, int64_t last_step,
         const std::string& load_path, const std::string& save_path,
         const std::string& out) {
  at::set_num_threads(1);
  init_process_group();
  const ParallelDims dims = init_parallel_dims({.ep = ep}, "cpu");
  TinyMoE model;
  if (get_world_size() > 1) ShardMoE(model, dims);
  torch::optim::AdamW optimizer(
      model->parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
  if (load_path != "-") Load(load_path, model, optimizer);
  std::ofstream losses(out);
  losses.precision(std::numeric_limits<double>::max_digits10);
  const int64_t share = kTokens / get_world_size();
  for (int64_t step = first_step; step < last_step; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss =
        ComputeLoss(model, MakeBatch(step, share * get_rank(), share));
    loss.backward();
    at::Tensor mean = loss.detach().clone();
    AllReduce(mean, ReduceOp::kAvg, world_group());
    losses << mean.item<double>() << "\n";
    optimizer.step();
  }
  if (save_path != "-")
    ThrowIfError(save(TrainingState(model, optimizer), save_path));
  destroy_process_group();
}

}  // namespace
}  // namespace fsdp::testing

int main(int argc, char** argv) {
  if (argc != 7) {
    std::cerr << "moe_trainer EP FIRST_STEP LAST_STEP LOAD SAVE OUT\n";
    return 2;
  }
  fsdp::testing::Run(std::stoll(argv[1]), std::stoll(argv[2]),
                     std::stoll(argv[3]), argv[4], argv[5], argv[6]);
}
