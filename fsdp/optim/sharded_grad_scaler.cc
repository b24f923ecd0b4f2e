// SPDX-License-Identifier: Apache-2.0

#include "fsdp/optim/sharded_grad_scaler.h"

#include <cmath>
#include <string>
#include <unordered_set>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/_amp_foreach_non_finite_check_and_unscale.h"
#include "ATen/ops/_amp_update_scale.h"
#include "ATen/ops/full.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/mesh_collectives.h"

namespace fsdp {
namespace {

void CheckGrowthFactor(double factor) {
  TORCH_CHECK_VALUE(std::isfinite(factor) && factor > 1, "growth_factor ",
                    factor, " must be above 1");
}

void CheckBackoffFactor(double factor) {
  TORCH_CHECK_VALUE(factor > 0 && factor < 1, "backoff_factor ", factor,
                    " must lie between 0 and 1");
}

void CheckGrowthInterval(int64_t interval) {
  TORCH_CHECK_VALUE(interval > 0, "growth_interval ", interval,
                    " must be above 0");
}

void CheckScale(double scale) {
  TORCH_CHECK_VALUE(std::isfinite(scale) && scale > 0, "scale ", scale,
                    " must be finite and above 0");
}

using GradientsByKind =
    std::map<std::pair<std::string, c10::ScalarType>, std::vector<at::Tensor>>;

// Validates all before any is unscaled.
GradientsByKind CollectGradients(torch::optim::Optimizer& optimizer) {
  GradientsByKind kinds;
  // A parameter that has two names may be listed twice.
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& grad = parameter.grad();
      if (!grad.defined()) continue;
      if (!seen.insert(grad.unsafeGetTensorImpl()).second) continue;
      TORCH_CHECK_VALUE(grad.scalar_type() != c10::ScalarType::Half,
                        "unscale_: a gradient is float16, where unscaled "
                        "values underflow; keep the parameters in float32 and "
                        "compute in float16 (MixedPrecisionPolicy)");
      TORCH_CHECK_NOT_IMPLEMENTED(!grad.is_sparse(),
                                  "unscale_: a gradient is sparse");
      kinds[{grad.device().str(), grad.scalar_type()}].push_back(grad);
    }
  }
  return kinds;
}

}  // namespace

ShardedGradScaler::ShardedGradScaler(const GradScalerOptions& options,
                                     ProcessGroup group)
    : options_(options), group_(std::move(group)) {
  if (!options_.enabled) return;
  CheckScale(options_.init_scale);
  CheckGrowthFactor(options_.growth_factor);
  CheckBackoffFactor(options_.backoff_factor);
  CheckGrowthInterval(options_.growth_interval);
}

at::Tensor ShardedGradScaler::scale(const at::Tensor& output) {
  if (!options_.enabled) return output;
  if (!scale_.defined()) {
    scale_ = at::full({}, options_.init_scale,
                      at::TensorOptions(at::kFloat).device(output.device()));
    growth_tracker_ =
        at::full({}, init_growth_tracker_,
                 at::TensorOptions(at::kInt).device(output.device()));
  }
  return output * scale_.to(output.device());
}

std::vector<at::Tensor> ShardedGradScaler::scale(
    const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> scaled;
  for (const at::Tensor& output : outputs) scaled.push_back(scale(output));
  return scaled;
}

void ShardedGradScaler::CheckScaled(const char* call) const {
  TORCH_CHECK(scale_.defined(), call,
              " before any scale(loss): the gradients are not scaled");
}

at::Tensor ShardedGradScaler::UnscaleGradients(
    torch::optim::Optimizer& optimizer) const {
  const at::NoGradGuard no_grad;
  // In float64, because float32 would round the reciprocal when the scale is
  // far from 1.
  const at::Tensor inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  at::Tensor found = at::zeros_like(scale_);
  const GradientsByKind kinds = CollectGradients(optimizer);
  for (const auto& [kind, alike] : kinds) {
    at::Tensor found_here =
        at::zeros({}, scale_.options().device(alike[0].device()));
    at::_amp_foreach_non_finite_check_and_unscale_(
        alike, found_here, inverse.to(alike[0].device()));
    found += found_here.to(scale_.device());
  }
  const at::Tensor any = at::full({}, kinds.empty() ? 0 : 1, scale_.options());
  at::Tensor agreed = at::stack({found, any});
  AllReduce(agreed, ReduceOp::kMax, group_ ? group_ : world_group());
  return agreed;
}

void ShardedGradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  CheckScaled("unscale_");
  OptimizerState& state = optimizers_[&optimizer];
  TORCH_CHECK(state.stage != Stage::kUnscaled,
              "unscale_ was called on this optimizer since the last update");
  TORCH_CHECK(state.stage != Stage::kStepped,
              "unscale_ after step; call update first");
  state.found = UnscaleGradients(optimizer);
  state.stage = Stage::kUnscaled;
}

bool ShardedGradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  CheckScaled("step");
  TORCH_CHECK(optimizers_[&optimizer].stage != Stage::kStepped,
              "step was called on this optimizer since the last update");
  if (optimizers_[&optimizer].stage == Stage::kReady) unscale_(optimizer);
  OptimizerState& state = optimizers_[&optimizer];
  const at::Tensor found = state.found.cpu();
  TORCH_CHECK(found[1].item<float>() > 0,
              "step: no parameter of this optimizer has a gradient, on any "
              "rank; build the optimizer after fully_shard, and call backward");
  state.found_inf = found[0].item<float>() > 0;
  state.stage = Stage::kStepped;
  if (*state.found_inf) return false;
  optimizer.step();
  return true;
}

void ShardedGradScaler::update(std::optional<double> new_scale) {
  if (!options_.enabled) return;
  CheckScaled("update");
  if (new_scale.has_value()) {
    CheckScale(*new_scale);
    scale_.fill_(*new_scale);
  } else {
    at::Tensor found = at::zeros_like(scale_);
    bool any = false;
    for (const auto& [optimizer, state] : optimizers_) {
      if (!state.found.defined()) continue;
      found += state.found[0];
      any = true;
    }
    TORCH_CHECK(any,
                "update was called before unscale_ or step, which check the "
                "gradients; call one of them first");
    at::_amp_update_scale_(scale_, growth_tracker_, found,
                           options_.growth_factor, options_.backoff_factor,
                           options_.growth_interval);
  }
  optimizers_.clear();
}

bool ShardedGradScaler::found_inf(
    const torch::optim::Optimizer& optimizer) const {
  const auto found = optimizers_.find(&optimizer);
  if (found == optimizers_.end() || !found->second.found.defined()) {
    return false;
  }
  const OptimizerState& state = found->second;
  return state.found_inf.has_value() ? *state.found_inf
                                     : state.found[0].item<float>() > 0;
}

double ShardedGradScaler::get_scale() const {
  if (!options_.enabled) return 1;
  return scale_.defined() ? scale_.item<double>() : options_.init_scale;
}

void ShardedGradScaler::set_growth_factor(double growth_factor) {
  CheckGrowthFactor(growth_factor);
  options_.growth_factor = growth_factor;
}

void ShardedGradScaler::set_backoff_factor(double backoff_factor) {
  CheckBackoffFactor(backoff_factor);
  options_.backoff_factor = backoff_factor;
}

void ShardedGradScaler::set_growth_interval(int64_t growth_interval) {
  CheckGrowthInterval(growth_interval);
  options_.growth_interval = growth_interval;
}

std::optional<GradScalerState> ShardedGradScaler::state_dict() const {
  if (!options_.enabled) return std::nullopt;
  GradScalerState state{.scale = options_.init_scale,
                        .growth_factor = options_.growth_factor,
                        .backoff_factor = options_.backoff_factor,
                        .growth_interval = options_.growth_interval,
                        .growth_tracker = init_growth_tracker_};
  if (scale_.defined()) {
    const at::Tensor numbers =
        at::stack({scale_.to(at::kDouble), growth_tracker_.to(at::kDouble)})
            .cpu();
    state.scale = numbers[0].item<double>();
    state.growth_tracker = numbers[1].item<int64_t>();
  }
  return state;
}

void ShardedGradScaler::load_state_dict(const GradScalerState& state) {
  if (!options_.enabled) return;
  CheckScale(state.scale);
  CheckGrowthFactor(state.growth_factor);
  CheckBackoffFactor(state.backoff_factor);
  CheckGrowthInterval(state.growth_interval);
  TORCH_CHECK_VALUE(state.growth_tracker >= 0, "growth_tracker ",
                    state.growth_tracker, " is below 0");
  options_.init_scale = state.scale;
  options_.growth_factor = state.growth_factor;
  options_.backoff_factor = state.backoff_factor;
  options_.growth_interval = state.growth_interval;
  init_growth_tracker_ = state.growth_tracker;
  if (scale_.defined()) scale_.fill_(state.scale);
  if (growth_tracker_.defined()) growth_tracker_.fill_(state.growth_tracker);
}

}  // namespace fsdp
