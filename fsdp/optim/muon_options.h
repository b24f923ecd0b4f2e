// SPDX-License-Identifier: Apache-2.0
// MuonOptions, the options of a group, and MuonParamState, the state of a
// parameter, in Muon.
// Plain values; for the thread that trains.
#ifndef FSDP_OPTIM_MUON_OPTIONS_H_
#define FSDP_OPTIM_MUON_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "ATen/core/Tensor.h"
#include "torch/optim/optimizer.h"

namespace fsdp::optim {

// Defaults and meaning are torch.optim.Muon's, up to adjust_lr_fn.
struct MuonOptions : torch::optim::OptimizerCloneableOptions<MuonOptions> {
  explicit MuonOptions(double lr = 1e-3) : lr_(lr) {}
  using coefficients_t = std::tuple<double, double, double>;

  TORCH_ARG(double, lr);
  TORCH_ARG(double, weight_decay) = 0.1;
  TORCH_ARG(double, momentum) = 0.95;
  TORCH_ARG(bool, nesterov) = true;
  TORCH_ARG(coefficients_t, ns_coefficients) = {3.4445, -4.7750, 2.0315};
  TORCH_ARG(double, eps) = 1e-7;
  TORCH_ARG(int64_t, ns_steps) = 5;
  // "original", which is the default, "match_rms_adamw" or
  // "spectral_unclamped": how lr follows from a matrix's shape.
  TORCH_ARG(std::optional<std::string>, adjust_lr_fn);
  // Whether parameters may have three dimensions, as stacks of matrices, such
  // as experts. It is an option because the kernel of a convolution also has
  // three dimensions and is not a stack of matrices.
  TORCH_ARG(bool, stacked) = false;
  // For a fused parameter, such as queries, keys and values by head: how many
  // rows each matrix has. 0: all.
  TORCH_ARG(int64_t, rows_per_matrix) = 0;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(const double lr) override { lr_ = lr; }
};

// Whether adjust_lr_fn may be `name`.
bool is_adjust_lr_fn(const std::string& name);

struct MuonParamState
    : torch::optim::OptimizerCloneableParamState<MuonParamState> {
  TORCH_ARG(at::Tensor, momentum_buffer);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

}  // namespace fsdp::optim

#endif  // FSDP_OPTIM_MUON_OPTIONS_H_
