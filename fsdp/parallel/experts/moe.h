// SPDX-License-Identifier: Apache-2.0
// MoE: a layer of routed experts, with shared experts beside them that every
// token visits. Names of state and the meaning of options are TorchTitan's
// (torchtitan/models/moe/moe.py of 0.2.2), so that checkpoints agree. No token
// is dropped. For the threads of forward and backward.
#ifndef FSDP_PARALLEL_EXPERTS_MOE_H_
#define FSDP_PARALLEL_EXPERTS_MOE_H_

#include <cstdint>
#include <optional>

#include "ATen/core/Tensor.h"
#include "fsdp/module/init_defaults.h"
#include "fsdp/parallel/experts/grouped_experts.h"
#include "fsdp/parallel/experts/router.h"
#include "fsdp/parallel/spmd/axis.h"
#include "fsdp/parallel/spmd/operand.h"
#include "torch/nn/module.h"
#include "torch/nn/modules/linear.h"
#include "torch/nn/pimpl.h"

namespace fsdp {

struct MoEArgs {
  RouterOptions router = {};
  // Experts of the same size that every token visits; they are one FeedForward.
  int64_t num_shared_experts = 1;
  // A token is multiplied by its scores before its experts, or their outputs
  // are.
  bool score_before_experts = true;
  // How far update_expert_bias moves a bias; absent: there is none.
  std::optional<double> load_balance_coeff = 1e-3;
};

// w2(silu(w1 x) * w3 x).
class FeedForwardImpl : public torch::nn::Module {
 public:
  FeedForwardImpl(int64_t dim, int64_t hidden_dim);
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Linear w1{nullptr}, w2{nullptr}, w3{nullptr};
};
TORCH_MODULE(FeedForward);

class MoEImpl : public torch::nn::Module {
 public:
  // `hidden_dim` is that of one expert.
  MoEImpl(const MoEArgs& args, int64_t dim, int64_t hidden_dim);

  // x: [..., dim]; so is the result. An x that lies in parts is gathered, and
  // the result is the whole; but parts of a sequence stay where they are on an
  // axis over which fully_shard reduces (context parallelism).
  at::Tensor forward(const at::Tensor& x);

  const MoEArgs& args() const { return args_; }
  // For parallelize_experts: the ranks of `tp`, whose tokens are equal, divide
  // them, so that each expert gets every token once.
  void divide_tokens_over(spmd::AxisPtr tp) { token_axis_ = std::move(tp); }

  GroupedExperts experts{nullptr};
  TokenChoiceTopKRouter router{nullptr};
  FeedForward shared_experts{nullptr};  // empty without shared experts
  // [num_experts], float32: added to scores for the choice, see
  // update_expert_bias. A buffer, hence in checkpoints; undefined without
  // load_balance_coeff.
  at::Tensor expert_bias;
  // [num_experts], float32: the tokens of this rank for each expert in training
  // since the last update_expert_bias. Not in checkpoints.
  at::Tensor tokens_per_expert;

 private:
  at::Tensor ForwardOfParts(const spmd::Operand& x, const spmd::AxisPtr& axis);
  // The outputs of routed experts for this rank's share of `tokens`, from all
  // ranks that have one.
  at::Tensor RoutedOfAll(const at::Tensor& tokens,
                         const TokenChoiceTopKRouterImpl::Choice& choice);
  at::Tensor Routed(const at::Tensor& x,
                    const TokenChoiceTopKRouterImpl::Choice& choice);
  void CountTokens(const at::Tensor& chosen);

  MoEArgs args_;
  spmd::AxisPtr token_axis_;  // null: this rank's tokens are its own
};
TORCH_MODULE(MoE);

// Initialises the weights of GroupedExperts as TorchTitan does (normal, w1 with
// deviation 0.02, w2 and w3 with `init_std`, within 2) and the buffer of MoE.
// For init::default_, which initialises their linears itself.
init::ModuleInit moe_init(double init_std = 0.02);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_EXPERTS_MOE_H_
