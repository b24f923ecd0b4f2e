// SPDX-License-Identifier: Apache-2.0
// Mlp: two layers, and a few training steps under fully_shard. For tests that
// move and keep parameters.
#ifndef TESTS_FSDP_MLP_H_
#define TESTS_FSDP_MLP_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/randn.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/mesh/process_group.h"
#include "torch/nn/module.h"
#include "torch/nn/modules/linear.h"
#include "torch/nn/pimpl.h"
#include "torch/optim/sgd.h"
#include "torch/utils.h"

namespace fsdp::testing {

// No rank count divides the row counts.
struct MlpImpl : torch::nn::Module {
  MlpImpl() {
    torch::manual_seed(7);
    up = register_module("up", torch::nn::Linear(30, 67));
    down = register_module("down", torch::nn::Linear(67, 5));
  }
  at::Tensor forward(const at::Tensor& x) { return down(up(x).relu()); }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Mlp);

// A step's batch over all ranks.
inline at::Tensor BatchOf(int64_t step) {
  torch::manual_seed(static_cast<uint64_t>(100 + step));
  return at::randn({12, 30});
}

// The same steps under fully_shard; losses are averaged over the ranks.
inline std::vector<double> TrainSharded(Mlp& model, int steps) {
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(0.5));
  std::vector<double> losses;
  const int64_t world = get_world_size();
  for (int64_t step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const at::Tensor mine = BatchOf(step).chunk(world)[get_rank()];
    const at::Tensor loss = model->forward(mine).square().mean();
    loss.backward();
    optimizer.step();
    at::Tensor sum = loss.detach().clone();
    AllReduce(sum, ReduceOp::kAvg, world_group());
    losses.push_back(sum.item<double>());
  }
  return losses;
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_MLP_H_
