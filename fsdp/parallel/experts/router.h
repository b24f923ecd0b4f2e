// SPDX-License-Identifier: Apache-2.0
// TokenChoiceTopKRouter: every token chooses experts by a linear layer's
// scores. Names, options and meaning are TorchTitan's
// (torchtitan/models/moe/moe.py in 0.2.2). For the threads of forward and
// backward.
#ifndef FSDP_PARALLEL_EXPERTS_ROUTER_H_
#define FSDP_PARALLEL_EXPERTS_ROUTER_H_

#include <cstdint>
#include <optional>

#include "ATen/core/Tensor.h"
#include "torch/nn/module.h"
#include "torch/nn/modules/linear.h"
#include "torch/nn/pimpl.h"

namespace fsdp {

enum class ScoreFunction : uint8_t { kSigmoid, kSoftmax };

struct RouterOptions {
  int64_t num_experts = 8;
  int64_t top_k = 1;
  ScoreFunction score_func = ScoreFunction::kSigmoid;
  // The scores of a token's experts are divided by their sum.
  bool route_norm = false;
  double route_scale = 1;
  bool gate_bias = false;
  // The experts form num_expert_groups equal groups. Only experts in the best
  // num_limited_groups may be chosen. A group is as good as its two best
  // experts.
  std::optional<int64_t> num_expert_groups = {};
  std::optional<int64_t> num_limited_groups = {};
};

class TokenChoiceTopKRouterImpl : public torch::nn::Module {
 public:
  // Throws c10::ValueError for options that contradict each other.
  TokenChoiceTopKRouterImpl(int64_t dim, const RouterOptions& options);

  struct Choice {
    at::Tensor scores;   // [tokens, top_k], float32, or float64 for such inputs
    at::Tensor experts;  // [tokens, top_k], int64
  };
  // x: [tokens, dim]. `expert_bias`, [num_experts] or undefined, is added to
  // the scores for the choice, but not to the returned scores.
  Choice forward(const at::Tensor& x, const at::Tensor& expert_bias = {});

  torch::nn::Linear gate{nullptr};

 private:
  // The scores, with -inf for experts in groups that are not chosen.
  at::Tensor WithinBestGroups(const at::Tensor& scores) const;

  RouterOptions options_;
};
TORCH_MODULE(TokenChoiceTopKRouter);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_EXPERTS_ROUTER_H_
