// SPDX-License-Identifier: Apache-2.0
// CompactAdamW: AdamW with moments in 16 or 8 bits, and float32 masters for
// parameters in bfloat16. A step computes in float32 and rounds the
// results. For each element of a parameter the optimizer keeps
//
//   moments  kFloat 8 bytes, kBFloat16 4, kByte 2 and the blocks' scales
//   masters  4 bytes, or none
//
// With kByte a parameter has codes (block_codes.h) if it has at least two
// dimensions, 4096 elements and rows of 64, and is sharded by rows or not at
// all; the moments of others are float32. For the thread that trains; no
// communication.
#ifndef FSDP_OPTIM_COMPACT_ADAMW_H_
#define FSDP_OPTIM_COMPACT_ADAMW_H_

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "torch/optim/optimizer.h"

namespace fsdp::optim {

struct CompactAdamWOptions
    : torch::optim::OptimizerCloneableOptions<CompactAdamWOptions> {
  explicit CompactAdamWOptions(double lr = 1e-3) : lr_(lr) {}
  using betas_t = std::tuple<double, double>;

  TORCH_ARG(double, lr);
  TORCH_ARG(betas_t, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 1e-2;
  // kFloat, kBFloat16 or kByte.
  TORCH_ARG(at::ScalarType, moments) = at::kBFloat16;
  // Parameters in bfloat16 have a float32 copy, which is stepped.
  TORCH_ARG(bool, master_weights) = false;
  // For moments in bfloat16, and for parameters in it without masters; false:
  // to the nearest.
  TORCH_ARG(bool, stochastic_rounding) = true;
  // For stochastic rounding. Equal on every rank.
  TORCH_ARG(int64_t, seed) = 0;

 public:
  double get_lr() const override { return lr(); }
  void set_lr(const double lr) override { lr_ = lr; }
};

struct CompactAdamWParamState
    : torch::optim::OptimizerCloneableParamState<CompactAdamWParamState> {
  TORCH_ARG(at::Tensor, step);  // float32 without dimensions
  // With the parameter's shape; undefined with codes.
  TORCH_ARG(at::Tensor, exp_avg);
  TORCH_ARG(at::Tensor, exp_avg_sq);
  // The same in 8 bits, by the names of bitsandbytes: codes with the
  // parameter's shape, the blocks' scales, and the maps. Undefined without
  // codes.
  TORCH_ARG(at::Tensor, state1);
  TORCH_ARG(at::Tensor, absmax1);
  TORCH_ARG(at::Tensor, qmap1);
  TORCH_ARG(at::Tensor, state2);
  TORCH_ARG(at::Tensor, absmax2);
  TORCH_ARG(at::Tensor, qmap2);
  // float32 with the parameter's shape; undefined without masters.
  TORCH_ARG(at::Tensor, master_param);
};

class CompactAdamW : public torch::optim::Optimizer {
 public:
  // Throws c10::ValueError for options out of range, in the defaults or a
  // group, and for parameters that are not float32 or bfloat16.
  explicit CompactAdamW(
      const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
      const CompactAdamWOptions& defaults = CompactAdamWOptions());
  explicit CompactAdamW(
      std::vector<at::Tensor> params,
      const CompactAdamWOptions& defaults = CompactAdamWOptions());

  // Parameters without a gradient are left alone. Everything is validated
  // before the first parameter changes.
  at::Tensor step(LossClosure closure = nullptr) override;

  // torch::save's archives do not hold this optimizer
  // (c10::NotImplementedError): fsdp::save does.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
};

// Adds the tensors that `state` lacks, as they are before the first step.
void CompleteCompactAdamWState(const at::Tensor& parameter,
                               const CompactAdamWOptions& options,
                               CompactAdamWParamState& state);

// The bytes that this rank keeps for all parameters: moments, scales, masters
// and step counts, as far as steps were made.
uint64_t StateBytes(const CompactAdamW& optimizer);

}  // namespace fsdp::optim

#endif  // FSDP_OPTIM_COMPACT_ADAMW_H_
