// SPDX-License-Identifier: Apache-2.0

#include "fsdp/optim/fused_adamw.h"

#include <map>
#include <memory>
#include <string>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/_foreach_add.h"
#include "ATen/ops/_fused_adam.h"
#include "ATen/ops/_fused_adamw.h"
#include "ATen/ops/empty_like.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "c10/core/impl/LocalDispatchKeySet.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/lazy/shard_use.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/optim/step_checks.h"
#include "torch/serialize/archive.h"

namespace fsdp {
namespace {

// The lists for one kernel call.
struct Batch {
  std::vector<at::Tensor> params;
  std::vector<at::Tensor> grads;
  std::vector<at::Tensor> exp_avgs;
  std::vector<at::Tensor> exp_avg_sqs;
  std::vector<at::Tensor> max_exp_avg_sqs;  // empty without amsgrad
  std::vector<at::Tensor> steps;
};

using Kind = std::pair<std::string, c10::ScalarType>;

void CheckOptions(const FusedAdamWOptions& options) {
  const auto [beta1, beta2] = options.betas();
  TORCH_CHECK_VALUE(options.lr() >= 0, "lr ", options.lr(), " is below 0");
  TORCH_CHECK_VALUE(options.eps() >= 0, "eps ", options.eps(), " is below 0");
  TORCH_CHECK_VALUE(beta1 >= 0 && beta1 < 1, "the first beta, ", beta1,
                    ", must be at least 0 and below 1");
  TORCH_CHECK_VALUE(beta2 >= 0 && beta2 < 1, "the second beta, ", beta2,
                    ", must be at least 0 and below 1");
  TORCH_CHECK_VALUE(options.weight_decay() >= 0, "weight_decay ",
                    options.weight_decay(), " is below 0");
}

// Null for a group that another optimizer steps.
const FusedAdamWOptions* FindOptions(
    const torch::optim::OptimizerParamGroup& group) {
  return dynamic_cast<const FusedAdamWOptions*>(&group.options());
}

void CheckParameter(const at::Tensor& parameter) {
  TORCH_CHECK_VALUE(c10::isFloatingType(parameter.scalar_type()),
                    "a parameter is ", parameter.scalar_type(),
                    "; FusedAdamW takes floating-point parameters");
  // The kernel runs over memory, whatever the strides.
  TORCH_CHECK_VALUE(parameter.is_non_overlapping_and_dense(),
                    "a parameter of shape ", parameter.sizes(), " has strides ",
                    parameter.strides(),
                    "; FusedAdamW takes parameters dense in memory");
}

// The gradient in the parameter's memory layout.
at::Tensor AlignedGradient(const at::Tensor& parameter) {
  const at::Tensor& grad = parameter.grad();
  if (grad.strides() == parameter.strides()) return grad;
  return at::empty_like(parameter, grad.options()).copy_(grad);
}

void RunKernel(Batch& batch, const FusedAdamWOptions& options) {
  const auto [beta1, beta2] = options.betas();
  at::_foreach_add_(batch.steps, 1);
  const auto kernel = [&](auto fused) {
    fused(batch.params, batch.grads, batch.exp_avgs, batch.exp_avg_sqs,
          batch.max_exp_avg_sqs, batch.steps, options.lr(), beta1, beta2,
          options.weight_decay(), options.eps(), options.amsgrad(),
          options.maximize());
  };
  if (options.decoupled_weight_decay()) {
    kernel([](auto&... args) { at::_fused_adamw_(args...); });
  } else {
    kernel([](auto&... args) { at::_fused_adam_(args...); });
  }
}

FusedAdamWParamState& GetState(OptimizerStates& states,
                               const at::Tensor& parameter, bool amsgrad) {
  auto& slot = states[parameter.unsafeGetTensorImpl()];
  if (!slot) slot = std::make_unique<FusedAdamWParamState>();
  auto& state = static_cast<FusedAdamWParamState&>(*slot);
  if (!state.step().defined()) {
    state.step(at::zeros(
        {}, at::TensorOptions(at::kFloat).device(parameter.device())));
    state.exp_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    state.exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
  }
  // Also when amsgrad was turned on later.
  if (amsgrad && !state.max_exp_avg_sq().defined()) {
    state.max_exp_avg_sq(state.exp_avg_sq().clone());
  }
  return state;
}

}  // namespace

void CheckFusedAdamWGroups(
    const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  for (const auto& group : groups) {
    const FusedAdamWOptions* options = FindOptions(group);
    if (options == nullptr) continue;
    CheckOptions(*options);
    for (const at::Tensor& parameter : group.params()) {
      CheckParameter(parameter);
    }
  }
}

void CheckFusedAdamWStep(
    const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  for (const auto& group : groups) {
    const FusedAdamWOptions* options = FindOptions(group);
    if (options == nullptr) continue;
    CheckOptions(*options);
    for (const at::Tensor& parameter : group.params()) {
      CheckReadyToStep(parameter, "FusedAdamW");
    }
  }
}

void StepFusedAdamW(
    const std::vector<torch::optim::OptimizerParamGroup>& groups,
    OptimizerStates& states) {
  for (const auto& group : groups) {
    if (FindOptions(group) == nullptr) continue;
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.grad().defined()) NoteShardWrite(parameter);
    }
  }
  // From here on every operator means the shards.
  const c10::impl::ExcludeDispatchKeyGuard by_shard(kLazyKey);
  for (const auto& group : groups) {
    const FusedAdamWOptions* options = FindOptions(group);
    if (options == nullptr) continue;
    std::map<Kind, Batch> batches;
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      FusedAdamWParamState& state =
          GetState(states, parameter, options->amsgrad());
      Batch& batch =
          batches[{parameter.device().str(), parameter.scalar_type()}];
      batch.params.push_back(parameter);
      batch.grads.push_back(AlignedGradient(parameter));
      batch.exp_avgs.push_back(state.exp_avg());
      batch.exp_avg_sqs.push_back(state.exp_avg_sq());
      if (options->amsgrad()) {
        batch.max_exp_avg_sqs.push_back(state.max_exp_avg_sq());
      }
      batch.steps.push_back(state.step());
    }
    for (auto& [kind, batch] : batches) RunKernel(batch, *options);
  }
}

void FusedAdamWOptions::serialize(
    torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(betas);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(amsgrad);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(maximize);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(decoupled_weight_decay);
}

void FusedAdamWOptions::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(betas_t, betas);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, amsgrad);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, maximize);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, decoupled_weight_decay);
}

void FusedAdamWParamState::serialize(
    torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(step);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg_sq);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(max_exp_avg_sq);
}

void FusedAdamWParamState::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, step);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, exp_avg);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, exp_avg_sq);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, max_exp_avg_sq);
}

FusedAdamW::FusedAdamW(
    const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
    const FusedAdamWOptions& defaults)
    : Optimizer(EachParameterOnce(param_groups),
                std::make_unique<FusedAdamWOptions>(defaults)) {
  CheckOptions(defaults);
  CheckFusedAdamWGroups(param_groups_);
}

FusedAdamW::FusedAdamW(std::vector<at::Tensor> params,
                       const FusedAdamWOptions& defaults)
    : FusedAdamW({torch::optim::OptimizerParamGroup(std::move(params))},
                 defaults) {}

at::Tensor FusedAdamW::step(LossClosure closure) {
  const at::Tensor loss = ComputeLoss(closure);
  const at::NoGradGuard no_grad;
  CheckFusedAdamWStep(param_groups_);
  StepFusedAdamW(param_groups_, state_);
  return loss;
}

void FusedAdamW::save(torch::serialize::OutputArchive& archive) const {
  serialize(*this, archive);
}

void FusedAdamW::load(torch::serialize::InputArchive& archive) {
  serialize(*this, archive);
}

}  // namespace fsdp
