// SPDX-License-Identifier: Apache-2.0
// FusedAdamW: Adam with or without decoupled weight decay. It runs one kernel
// for all parameters in a group that share device and dtype.
// torch::optim::AdamW runs a dozen small kernels for each parameter, which take
// most of the time when a model has hundreds of small shards. The results equal
// torch::optim::AdamW's (Adam's) up to rounding. It is a
// torch::optim::Optimizer: groups, schedulers, save and load work. Shards
// without elements are fine. For the thread that trains; no communication.
#ifndef FSDP_OPTIM_FUSED_ADAMW_H_
#define FSDP_OPTIM_FUSED_ADAMW_H_

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "torch/optim/optimizer.h"
#include "torch/optim/serialize.h"

namespace fsdp {

struct FusedAdamWOptions
    : torch::optim::OptimizerCloneableOptions<FusedAdamWOptions> {
  explicit FusedAdamWOptions(double lr = 1e-3) : lr_(lr) {}
  using betas_t = std::tuple<double, double>;

  TORCH_ARG(double, lr);
  TORCH_ARG(betas_t, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 1e-2;
  TORCH_ARG(bool, amsgrad) = false;
  TORCH_ARG(bool, maximize) = false;
  // true: AdamW, where decay shrinks the parameter. false: Adam, where decay is
  // added to the gradient.
  TORCH_ARG(bool, decoupled_weight_decay) = true;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(const double lr) override { lr_ = lr; }
};

// As in PyTorch, `step` is a float32 tensor without dimensions on the moments'
// device, so that a step on a GPU never waits for the host.
struct FusedAdamWParamState
    : torch::optim::OptimizerCloneableParamState<FusedAdamWParamState> {
  TORCH_ARG(at::Tensor, step);
  TORCH_ARG(at::Tensor, exp_avg);
  TORCH_ARG(at::Tensor, exp_avg_sq);
  TORCH_ARG(at::Tensor, max_exp_avg_sq);  // undefined without amsgrad

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

class FusedAdamW : public torch::optim::Optimizer {
 public:
  // Throws c10::ValueError for options out of range, in the defaults or a
  // group. Parameters must have a floating dtype and be dense in memory.
  explicit FusedAdamW(
      const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
      const FusedAdamWOptions& defaults = FusedAdamWOptions());
  explicit FusedAdamW(std::vector<at::Tensor> params,
                      const FusedAdamWOptions& defaults = FusedAdamWOptions());

  // Parameters without a gradient are left alone. Everything is validated
  // before the first parameter changes. Throws c10::NotImplementedError for a
  // sparse gradient.
  at::Tensor step(LossClosure closure = nullptr) override;

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  template <typename Self, typename Archive>
  static void serialize(Self& self, Archive& archive) {
    torch::optim::serialize<FusedAdamWParamState, FusedAdamWOptions>(archive,
                                                                     self);
  }
};

// The functions below are FusedAdamW's, for an optimizer that also has groups
// of other kinds. They use the groups with FusedAdamWOptions and skip all
// others.
using OptimizerStates =
    ska::flat_hash_map<void*,
                       std::unique_ptr<torch::optim::OptimizerParamState>>;
// The constructor's checks.
void CheckFusedAdamWGroups(
    const std::vector<torch::optim::OptimizerParamGroup>& groups);
// The checks before a step.
void CheckFusedAdamWStep(
    const std::vector<torch::optim::OptimizerParamGroup>& groups);
// The step itself, without autograd.
void StepFusedAdamW(
    const std::vector<torch::optim::OptimizerParamGroup>& groups,
    OptimizerStates& states);

}  // namespace fsdp

#endif  // FSDP_OPTIM_FUSED_ADAMW_H_
