// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/experts/moe.h"

#include <string>
#include <utility>

#include "ATen/ops/arange.h"
#include "ATen/ops/silu.h"
#include "ATen/ops/zeros.h"
#include "c10/core/ScalarType.h"
#include "c10/util/Exception.h"
#include "fsdp/forward.h"
#include "fsdp/module/init.h"
#include "fsdp/parallel/experts/expert_order.h"
#include "fsdp/parallel/spmd/layout.h"
#include "fsdp/parallel/spmd/moves.h"
#include "fsdp/parallel/spmd/sharded.h"
#include "torch/csrc/autograd/graph_task.h"

namespace fsdp {
namespace {

torch::nn::Linear WithoutBias(int64_t inputs, int64_t outputs) {
  return torch::nn::Linear(
      torch::nn::LinearOptions(inputs, outputs).bias(false));
}

}  // namespace

FeedForwardImpl::FeedForwardImpl(int64_t dim, int64_t hidden_dim) {
  w1 = register_module("w1", WithoutBias(dim, hidden_dim));
  w2 = register_module("w2", WithoutBias(hidden_dim, dim));
  w3 = register_module("w3", WithoutBias(dim, hidden_dim));
}

at::Tensor FeedForwardImpl::forward(const at::Tensor& x) {
  return w2(at::silu(w1(x)) * w3(x));
}

MoEImpl::MoEImpl(const MoEArgs& args, int64_t dim, int64_t hidden_dim)
    : args_(args) {
  const int64_t num_experts = args.router.num_experts;
  TORCH_CHECK_VALUE(args.num_shared_experts >= 0, "num_shared_experts is ",
                    args.num_shared_experts);
  TORCH_CHECK_VALUE(args.load_balance_coeff.value_or(1) > 0,
                    "load_balance_coeff is ", *args.load_balance_coeff,
                    ", but must be positive; leave it out for no balance");
  experts =
      register_module("experts", GroupedExperts(dim, hidden_dim, num_experts));
  router = register_module("router", TokenChoiceTopKRouter(dim, args.router));
  if (args.num_shared_experts > 0) {
    shared_experts =
        register_module("shared_experts",
                        FeedForward(dim, hidden_dim * args.num_shared_experts));
  }
  if (args.load_balance_coeff.has_value()) {
    expert_bias =
        register_buffer("expert_bias", torch::zeros({num_experts}, at::kFloat));
  }
  tokens_per_expert = at::zeros({num_experts}, at::kFloat);
}

at::Tensor MoEImpl::forward(const at::Tensor& x) {
  if (const spmd::Sharded* parts = spmd::AsSharded(x)) {
    return ForwardParts(spmd::Operand(x, parts->axis), parts->axis);
  }
  const at::Tensor tokens = x.reshape({-1, x.size(-1)});
  const TokenChoiceTopKRouterImpl::Choice choice = router(tokens, expert_bias);
  CountTokens(choice.experts);
  at::Tensor result = RoutedOutputs(tokens, choice);
  if (!shared_experts.is_empty()) result = result + shared_experts(tokens);
  return result.view(x.sizes());
}

at::Tensor MoEImpl::ForwardParts(const spmd::Operand& x,
                                 const spmd::AxisPtr& axis) {
  const bool has_whole_tokens = x.is_shard() && x.layout().dim + 1 < x.ndim() &&
                                spmd::AsSharded(x.part()) == nullptr;
  if (!has_whole_tokens ||
      !spmd::IsAveragedByFullyShard(router->gate->weight, *axis)) {
    return forward(x.To(spmd::Layout::Same()));
  }
  // fully_shard will take the mean over the axis where the sum of the parts'
  // gradients is needed: parameter gradients are multiplied, the gradient of x
  // is not.
  const at::Tensor y = forward(spmd::ShareGradient(x.part(), axis));
  return spmd::Wrap(spmd::MultiplyGradient(y, axis), x.layout(), axis,
                    x.sizes());
}

at::Tensor MoEImpl::RoutedOutputs(
    const at::Tensor& tokens, const TokenChoiceTopKRouterImpl::Choice& choice) {
  if (token_axis_ == nullptr) return Routed(tokens, choice);
  const spmd::Layout same = spmd::Layout::Same();
  const spmd::Layout rows = spmd::Layout::Shard(0);
  const auto share = [&](const at::Tensor& all) {
    return spmd::Move(all, same, rows, all.sizes().vec(), token_axis_);
  };
  const at::Tensor own = Routed(
      share(tokens),
      {.scores = share(choice.scores), .experts = share(choice.experts)});
  return spmd::Move(own, rows, same, tokens.sizes().vec(), token_axis_);
}

at::Tensor MoEImpl::Routed(const at::Tensor& x,
                           const TokenChoiceTopKRouterImpl::Choice& choice) {
  const int64_t top_k = choice.experts.size(1);
  // Places in [tokens, top_k], by expert.
  const at::Tensor order = choice.experts.reshape({-1}).argsort(
      /*stable=*/true, /*dim=*/0, /*descending=*/false);
  at::Tensor rows = x.index_select(0, order.floor_divide(top_k));
  if (args_.score_before_experts) {
    const at::Tensor scores = choice.scores.reshape({-1, 1});
    rows = (rows * scores.index_select(0, order)).to(x.scalar_type());
  }
  // At the exact boundary, rows travel in the experts' precision, and their
  // weights are gathered before.
  const at::Tensor y = fsdp::forward(
      experts, rows, CountPerExpert(choice.experts, args_.router.num_experts));
  const at::Tensor by_token =
      y.index_select(0, Inverse(order)).view({-1, top_k, x.size(1)});
  if (args_.score_before_experts) return by_token.sum(1);
  return choice.scores.unsqueeze(1)
      .bmm(by_token.to(choice.scores.scalar_type()))
      .squeeze(1)
      .to(x.scalar_type());
}

void MoEImpl::CountTokens(const at::Tensor& chosen) {
  // A block that backward computes again has been counted.
  const bool is_again = torch::autograd::get_current_graph_task_id() != -1;
  if (!is_training() || is_again) return;
  const at::NoGradGuard no_grad;
  if (tokens_per_expert.is_meta()) {
    tokens_per_expert =
        at::zeros(tokens_per_expert.sizes(),
                  tokens_per_expert.options().device(chosen.device()));
  } else if (tokens_per_expert.device() != chosen.device()) {
    tokens_per_expert = tokens_per_expert.to(chosen.device());
  }
  tokens_per_expert.add_(CountPerExpert(chosen, args_.router.num_experts));
}

init::ModuleInit moe_init(double init_std) {
  return [init_std](const std::string& name, torch::nn::Module& module,
                    uint64_t seed) {
    if (const auto* moe = module.as<MoEImpl>()) {
      if (moe->expert_bias.defined()) init::zeros_(moe->expert_bias);
      return true;
    }
    const auto* experts = module.as<GroupedExpertsImpl>();
    if (experts == nullptr) return false;
    const auto normal = [&](const at::Tensor& weight, const char* own,
                            double std) {
      const std::string path = name.empty() ? own : name + "." + own;
      init::trunc_normal_(weight, 0, std, -2, 2, init::seed_of(seed, path));
    };
    normal(experts->w1, "w1", 0.02);
    normal(experts->w2, "w2", init_std);
    normal(experts->w3, "w3", init_std);
    return true;
  };
}

}  // namespace fsdp
