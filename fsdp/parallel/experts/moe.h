// SPDX-License-Identifier: Apache-2.0
// MoE: a layer with routed experts, and shared experts that every token visits
// in addition. State names and the meaning of options are TorchTitan's
// (torchtitan/models/moe/moe.py in 0.2.2), so that checkpoints agree. No token
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
  // Equally large experts that every token visits; they are one FeedForward.
  int64_t num_shared_experts = 1;
  // true: a token is multiplied by the scores before the experts; false: the
  // experts' outputs are.
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
  // `hidden_dim` is one expert's.
  MoEImpl(const MoEArgs& args, int64_t dim, int64_t hidden_dim);

  // x: [..., dim], and so is the result. An x in parts is gathered, and the
  // result is whole. But sequence parts stay in place on an axis over which
  // fully_shard reduces (context parallelism).
  at::Tensor forward(const at::Tensor& x);

  const MoEArgs& args() const { return args_; }
  // For parallelize_experts: the ranks in `tp`, which have equal tokens, divide
  // them, so that each expert gets every token once.
  void divide_tokens_over(spmd::AxisPtr tp) { token_axis_ = std::move(tp); }

  GroupedExperts experts{nullptr};
  TokenChoiceTopKRouter router{nullptr};
  FeedForward shared_experts{nullptr};  // empty without shared experts
  // [num_experts], float32: added to scores for the choice, see
  // update_expert_bias. A buffer, hence in checkpoints; undefined without
  // load_balance_coeff.
  at::Tensor expert_bias;
  // [num_experts], float32: how many of this rank's tokens went to each expert
  // in training since the last update_expert_bias. Not in checkpoints.
  at::Tensor tokens_per_expert;

 private:
  at::Tensor ForwardParts(const spmd::Operand& x, const spmd::AxisPtr& axis);
  // The routed experts' outputs for this rank's share of `tokens`, from all
  // ranks that have one.
  at::Tensor RoutedOutputs(const at::Tensor& tokens,
                           const TokenChoiceTopKRouterImpl::Choice& choice);
  at::Tensor Routed(const at::Tensor& x,
                    const TokenChoiceTopKRouterImpl::Choice& choice);
  void CountTokens(const at::Tensor& chosen);

  MoEArgs args_;
  spmd::AxisPtr token_axis_;  // null: no other rank has this rank's tokens
};
TORCH_MODULE(MoE);

// Initialises GroupedExperts' weights as TorchTitan does (normal, w1 with
// deviation 0.02, w2 and w3 with `init_std`, within 2) and MoE's buffer. For
// init::default_, which initialises their linears itself.
init::ModuleInit moe_init(double init_std = 0.02);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_EXPERTS_MOE_H_
