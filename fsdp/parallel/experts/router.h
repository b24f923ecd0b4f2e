// SPDX-License-Identifier: Apache-2.0
// TokenChoiceTopKRouter: every token chooses its experts by the scores of a
// linear layer. Names, options and meaning are TorchTitan's
// (torchtitan/models/moe/moe.py of 0.2.2). For the threads of forward and
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
  // Only experts of the best num_limited_groups of num_expert_groups equal
  // groups may be chosen. A group is as good as its two best experts.
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
  // scores for the choice, and is not part of what is returned.
  Choice forward(const at::Tensor& x, const at::Tensor& expert_bias = {});

  torch::nn::Linear gate{nullptr};

 private:
  // The scores with -inf for the experts of groups that are not chosen.
  at::Tensor WithinBestGroups(const at::Tensor& scores) const;

  RouterOptions options_;
};
TORCH_MODULE(TokenChoiceTopKRouter);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_EXPERTS_ROUTER_H_
