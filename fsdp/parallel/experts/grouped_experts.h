// SPDX-License-Identifier: Apache-2.0
// GroupedExperts: one layer's experts, each a SwiGLU with separate weights,
// held as three tensors. Names and shapes are TorchTitan's
// (torchtitan/models/moe/moe.py in 0.2.2). For the threads of forward and
// backward.
#ifndef FSDP_PARALLEL_EXPERTS_GROUPED_EXPERTS_H_
#define FSDP_PARALLEL_EXPERTS_GROUPED_EXPERTS_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/parallel/spmd/axis.h"
#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"

namespace fsdp {

// How parallelize_experts divided one layer's experts.
struct ExpertGroups {
  // The ranks that divide the experts; null: this rank has all of them.
  ProcessGroup ep;
  // The ranks that cut each expert's hidden dimension; null: it is whole.
  spmd::AxisPtr tp;
};

class GroupedExpertsImpl : public torch::nn::Module {
 public:
  // Weights are normal with deviation 0.02.
  GroupedExpertsImpl(int64_t dim, int64_t hidden_dim, int64_t num_experts);

  // x: [rows, dim], by expert. num_tokens_per_expert: [num_experts], int64: how
  // many rows each expert has, whether or not it is on this rank. Returns
  // [rows, dim], in the same order. With ExpertGroups the call is collective
  // over them, and rows travel to their experts' ranks and back; ranks may have
  // no rows, and neither may experts.
  at::Tensor forward(const at::Tensor& x,
                     const at::Tensor& num_tokens_per_expert);

  // In the whole layer.
  int64_t num_experts() const { return num_experts_; }
  int64_t hidden_dim() const { return hidden_dim_; }

  const ExpertGroups& groups() const { return groups_; }
  // For parallelize_experts, which has cut the weights accordingly.
  void set_groups(ExpertGroups groups) { groups_ = std::move(groups); }

  at::Tensor w1;  // [num_experts, hidden_dim, dim]
  at::Tensor w2;  // [num_experts, dim, hidden_dim]
  at::Tensor w3;  // [num_experts, hidden_dim, dim]

 private:
  // Runs this rank's experts on rows by expert. `counts_on_host`, the same
  // numbers, are read without a wait if they are on the CPU.
  at::Tensor Compute(const at::Tensor& rows, const at::Tensor& counts,
                     const at::Tensor& counts_on_host);
  at::Tensor DispatchComputeCombine(const at::Tensor& x,
                                    const at::Tensor& counts);

  int64_t num_experts_;
  int64_t hidden_dim_;
  ExpertGroups groups_;
};
TORCH_MODULE(GroupedExperts);

// w2(silu(w1 x) * w3 x) for each expert, one after the other, in any dtype.
// counts: [experts in w1], int64, on any device; they add up to the row count.
// Waits for them.
at::Tensor RunExpertsInALoop(const at::Tensor& w1, const at::Tensor& w2,
                             const at::Tensor& w3, const at::Tensor& rows,
                             const at::Tensor& counts);
// The same as three grouped products, without waiting for the device. For
// bfloat16; GroupedExperts uses it for that dtype on CUDA.
at::Tensor RunExpertsGrouped(const at::Tensor& w1, const at::Tensor& w2,
                             const at::Tensor& w3, const at::Tensor& rows,
                             const at::Tensor& counts);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_EXPERTS_GROUPED_EXPERTS_H_
