// SPDX-License-Identifier: Apache-2.0
// A stack of MLPs for tests of tensor parallelism, with a plan and batches;
// like MLPStack in torch/testing/_internal/common_fsdp.py, but smooth, so that
// no gradient is zero. For a rank's thread.
#ifndef TESTS_FSDP_PARALLEL_TENSOR_MLP_STACK_H_
#define TESTS_FSDP_PARALLEL_TENSOR_MLP_STACK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/mesh/device_mesh.h"
#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "torch/nn.h"
#include "torch/types.h"
#include "torch/utils.h"

namespace fsdp::testing {

inline constexpr int64_t kNumMlps = 3;

struct MlpImpl : torch::nn::Module {
  MlpImpl(int64_t dim, int64_t hidden) {
    in_proj = register_module("in_proj", torch::nn::Linear(dim, hidden));
    out_proj = register_module("out_proj", torch::nn::Linear(hidden, dim));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return out_proj(torch::tanh(in_proj(x)));
  }
  torch::nn::Linear in_proj{nullptr}, out_proj{nullptr};
};
using Mlp = Checkpointed<MlpImpl>;

struct StackImpl : torch::nn::Module {
  explicit StackImpl(int64_t dim) {
    for (int64_t i = 0; i < kNumMlps; ++i) {
      mlps.emplace_back(dim, i == 1 ? dim : 3 * dim);
      register_module("mlp" + std::to_string(i), mlps.back().ptr());
    }
    Recompute(false);
  }
  torch::Tensor forward(torch::Tensor x) {
    for (Mlp& mlp : mlps) x = mlp(x);
    return x;
  }
  void Recompute(bool enabled) {
    apply_activation_checkpointing(*this, [enabled](const Module& module) {
      return enabled && module.as<MlpImpl>() != nullptr;
    });
  }
  std::vector<Mlp> mlps;
};
TORCH_MODULE(Stack);

inline Stack MakeStack(int64_t dim) {
  torch::manual_seed(5);
  return Stack(dim);
}

inline const ParallelizePlan& StackPlan() {
  static const auto* plan =
      new ParallelizePlan{{"mlp*.in_proj", ColwiseParallel()},
                          {"mlp*.out_proj", RowwiseParallel()}};
  return *plan;
}

// This rank's rows in a step's batch, and all rows.
struct Batch {
  torch::Tensor mine, whole;
};
inline Batch MakeBatch(int64_t step, int64_t dim, const DeviceMesh& dp) {
  const torch::Tensor place = torch::arange(4 * dim, torch::kDouble);
  const torch::Tensor whole =
      torch::sin(0.7 * place * place + static_cast<double>(step))
          .view({4, dim});
  const int64_t rows = 4 / dp.size();
  return {whole.narrow(0, rows * dp.get_local_rank(), rows), whole};
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_PARALLEL_TENSOR_MLP_STACK_H_
