// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/experts/router.h"

#include <limits>

#include "ATen/ops/ones_like.h"
#include "ATen/ops/sigmoid.h"
#include "ATen/ops/softmax.h"
#include "c10/core/ScalarType.h"
#include "c10/util/Exception.h"

namespace fsdp {
namespace {

void CheckOptions(const RouterOptions& options) {
  TORCH_CHECK_VALUE(1 <= options.top_k && options.top_k <= options.num_experts,
                    "top_k (", options.top_k,
                    ") must be between 1 and num_experts (",
                    options.num_experts, ")");
  if (!options.num_expert_groups.has_value()) return;
  const int64_t groups = *options.num_expert_groups;
  TORCH_CHECK_VALUE(groups >= 1 && options.num_experts % groups == 0,
                    "num_experts (", options.num_experts,
                    ") must be divisible by num_expert_groups (", groups, ")");
  const int64_t experts = options.num_experts / groups;
  TORCH_CHECK_VALUE(experts >= 2, "num_expert_groups (", groups, ") leaves ",
                    experts, " expert in a group, but 2 are needed");
  TORCH_CHECK_VALUE(options.num_limited_groups.has_value(),
                    "num_expert_groups requires num_limited_groups");
  const int64_t limited = *options.num_limited_groups;
  TORCH_CHECK_VALUE(1 <= limited && limited <= groups, "num_limited_groups (",
                    limited, ") must be between 1 and num_expert_groups (",
                    groups, ")");
  TORCH_CHECK_VALUE(options.top_k <= limited * experts, "top_k (",
                    options.top_k, ") is more than the ", limited * experts,
                    " experts of num_limited_groups (", limited, ")");
}

}  // namespace

TokenChoiceTopKRouterImpl::TokenChoiceTopKRouterImpl(
    int64_t dim, const RouterOptions& options)
    : options_(options) {
  CheckOptions(options);
  gate = register_module(
      "gate",
      torch::nn::Linear(torch::nn::LinearOptions(dim, options.num_experts)
                            .bias(options.gate_bias)));
}

TokenChoiceTopKRouterImpl::Choice TokenChoiceTopKRouterImpl::forward(
    const at::Tensor& x, const at::Tensor& expert_bias) {
  at::Tensor scores = gate(x);
  // Low precision makes losses explode.
  scores = scores.to(c10::promoteTypes(scores.scalar_type(), at::kFloat));
  scores = options_.score_func == ScoreFunction::kSigmoid
               ? at::sigmoid(scores)
               : at::softmax(scores, 1);
  at::Tensor for_choice = scores.detach();
  if (expert_bias.defined()) for_choice = for_choice + expert_bias;
  if (options_.num_expert_groups.has_value()) {
    for_choice = WithinBestGroups(for_choice);
  }
  const at::Tensor experts = std::get<1>(for_choice.topk(
      options_.top_k, /*dim=*/-1, /*largest=*/true, /*sorted=*/false));
  at::Tensor chosen = scores.gather(1, experts);
  if (options_.route_norm) {
    chosen = chosen / (chosen.sum(-1, /*keepdim=*/true) + 1e-20);
  }
  return {.scores = chosen * options_.route_scale, .experts = experts};
}

at::Tensor TokenChoiceTopKRouterImpl::WithinBestGroups(
    const at::Tensor& scores) const {
  const at::Tensor grouped =
      scores.view({scores.size(0), *options_.num_expert_groups, -1});
  const at::Tensor best_two = std::get<0>(grouped.topk(2, /*dim=*/-1));
  const at::Tensor group_scores = best_two.sum(-1);
  const at::Tensor best_groups =
      std::get<1>(group_scores.topk(*options_.num_limited_groups, /*dim=*/-1));
  const at::Tensor left_out =
      at::ones_like(group_scores, at::kBool).scatter_(1, best_groups, false);
  return grouped
      .masked_fill(left_out.unsqueeze(-1),
                   -std::numeric_limits<double>::infinity())
      .flatten(1);
}

}  // namespace fsdp
