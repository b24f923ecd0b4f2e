// SPDX-License-Identifier: Apache-2.0
// A small module that is cut manually over a tensor-parallel axis: each rank
// holds a part of two linears, and fully_shard is told about it. For tests.
#ifndef TESTS_FSDP_PARALLEL_MLP_H_
#define TESTS_FSDP_PARALLEL_MLP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "torch/autograd.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {

inline constexpr int64_t kMlpDim = 5;

// The sum over the axis; backward passes each rank's gradient on unchanged.
struct SumOverAxis : torch::autograd::Function<SumOverAxis> {
  static torch::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                               const torch::Tensor& x, ProcessGroup group) {
    torch::Tensor sum = x.clone();
    AllReduce(sum, ReduceOp::kSum, group);
    return sum;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* /*context*/,
      torch::autograd::variable_list grads) {
    return {grads[0], torch::Tensor()};
  }
};

// y = down(relu(up(x))) + bias: `up` cut by rows, `down` by columns.
struct MlpImpl : torch::nn::Module {
  MlpImpl(int64_t hidden, ProcessGroup axis) : group(std::move(axis)) {
    up = register_module("up", torch::nn::Linear(kMlpDim, hidden));
    down = register_module(
        "down", torch::nn::Linear(
                    torch::nn::LinearOptions(hidden, kMlpDim).bias(false)));
    bias = register_parameter("bias", torch::zeros({kMlpDim}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = down(torch::relu(up(x)));
    if (group) y = SumOverAxis::apply(y, group);
    return y + bias;
  }
  torch::nn::Linear up{nullptr}, down{nullptr};
  torch::Tensor bias;
  ProcessGroup group;  // null: the whole module
};
TORCH_MODULE(Mlp);

// Each parameter's tensor-parallel placement.
inline Placement PlacementOf(const std::string& name) {
  if (name == "up.weight" || name == "up.bias") return Shard(0);
  if (name == "down.weight") return Shard(1);
  return Replicate();
}

// This rank's part of `whole`, and the specs that say so.
inline Mlp Parallelize(const Mlp& whole, const DeviceMesh& tp) {
  const torch::NoGradGuard no_grad;
  const int64_t hidden = whole->up->weight.size(0);
  Mlp part(hidden / tp.size(), tp.get_group());
  const auto values = whole->named_parameters();
  for (const auto& item : part->named_parameters()) {
    item.value().copy_(distribute_tensor(values[item.key()].detach(), tp,
                                         {PlacementOf(item.key())})
                           .to_local());
  }
  return part;
}

// Options for fully_shard over `dp`, for a part that Parallelize returned.
inline FullyShardOptions ParallelOptions(const Mlp& whole, const DeviceMesh& dp,
                                         const DeviceMesh& tp) {
  FullyShardOptions options{.mesh = dp};
  const auto values = whole->named_parameters();
  options.tensor_parallel_fn =
      [values, tp](const std::string& name,
                   const at::Tensor&) -> std::optional<DTensorSpec> {
    const at::Tensor& value = values[name];
    return DTensorSpec{.mesh = tp,
                       .placements = {PlacementOf(name)},
                       .shape = value.sizes().vec(),
                       .stride = value.strides().vec()};
  };
  return options;
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_PARALLEL_MLP_H_
