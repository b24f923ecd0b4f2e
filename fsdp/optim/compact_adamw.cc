// SPDX-License-Identifier: Apache-2.0

#include "fsdp/optim/compact_adamw.h"

#include <cmath>
#include <memory>
#include <optional>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "c10/core/impl/LocalDispatchKeySet.h"
#include "c10/util/Exception.h"
#include "c10/util/accumulate.h"
#include "c10/util/hash.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/lazy/shard_use.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/optim/block_codes.h"
#include "fsdp/optim/step_checks.h"
#include "fsdp/optim/stochastic_rounding.h"

namespace fsdp::optim {
namespace {

constexpr int64_t kLeastCodes = 4096;  // as in both libraries
constexpr int64_t kLeastRow = 64;

void CheckOptions(const CompactAdamWOptions& options) {
  const auto [beta1, beta2] = options.betas();
  TORCH_CHECK_VALUE(options.lr() >= 0, "lr ", options.lr(), " is below 0");
  TORCH_CHECK_VALUE(options.eps() >= 0, "eps ", options.eps(), " is below 0");
  TORCH_CHECK_VALUE(beta1 >= 0 && beta1 < 1, "the first beta, ", beta1,
                    ", must be at least 0 and below 1");
  TORCH_CHECK_VALUE(beta2 >= 0 && beta2 < 1, "the second beta, ", beta2,
                    ", must be at least 0 and below 1");
  TORCH_CHECK_VALUE(options.weight_decay() >= 0, "weight_decay ",
                    options.weight_decay(), " is below 0");
  TORCH_CHECK_VALUE(options.moments() == at::kFloat ||
                        options.moments() == at::kBFloat16 ||
                        options.moments() == at::kByte,
                    "moments are ", options.moments(),
                    "; CompactAdamW keeps them as Float, BFloat16 or Byte");
}

void CheckParameter(const at::Tensor& parameter) {
  TORCH_CHECK_VALUE(parameter.scalar_type() == at::kFloat ||
                        parameter.scalar_type() == at::kBFloat16,
                    "a parameter is ", parameter.scalar_type(),
                    "; CompactAdamW takes Float and BFloat16");
}

const CompactAdamWOptions& GroupOptions(
    const torch::optim::OptimizerParamGroup& group) {
  return static_cast<const CompactAdamWOptions&>(group.options());
}

// By the whole parameter, so that all ranks decide alike.
bool HasCodes(const at::Tensor& parameter, const CompactAdamWOptions& options) {
  if (options.moments() != at::kByte) return false;
  std::vector<int64_t> shape = parameter.sizes().vec();
  if (const FsdpParam* param = FsdpParam::FindByShard(parameter)) {
    const DTensorSpec spec = param->AsDTensor().spec();
    shape = spec.shape;
    for (const Placement& placement : spec.placements) {
      if (!placement.is_replicate() && !placement.is_shard(0)) return false;
    }
  }
  if (shape.size() < 2) return false;
  const int64_t numel = c10::multiply_integers(shape);
  return numel >= kLeastCodes && numel / shape[0] >= kLeastRow;
}

// The same for replicas of one part, and another for each part, parameter, step
// and use.
uint64_t SeedFor(const CompactAdamWOptions& options, int64_t step,
                 size_t number, const at::Tensor& parameter, int use) {
  size_t seed = c10::get_hash(options.seed(), step, number, use);
  if (const FsdpParam* param = FsdpParam::FindByShard(parameter)) {
    for (const dcp::Box& box : param->AsDTensor().spec().local_boxes()) {
      for (const int64_t offset : box.offsets) {
        seed = c10::hash_combine(seed, c10::get_hash(offset));
      }
    }
  }
  return seed;
}

// Makes a step of one parameter.
class ParameterStep {
 public:
  ParameterStep(const CompactAdamWOptions& options,
                CompactAdamWParamState& state, size_t number,
                const at::Tensor& parameter)
      : options_(options),
        state_(state),
        number_(number),
        parameter_(parameter) {}

  void Run() {
    state_.step().add_(1);
    step_ = state_.step().item<double>();
    const auto [beta1, beta2] = options_.betas();
    const at::Tensor grad = parameter_.grad().to(at::kFloat);
    const bool has_codes = state_.state1().defined();
    BlockCodes first{state_.state1(), state_.absmax1()};
    BlockCodes second{state_.state2(), state_.absmax2()};
    at::Tensor exp_avg = has_codes ? DecodeBlocks(first, state_.qmap1())
                                   : state_.exp_avg().to(at::kFloat);
    at::Tensor exp_avg_sq = has_codes ? DecodeBlocks(second, state_.qmap2())
                                      : state_.exp_avg_sq().to(at::kFloat);
    exp_avg = exp_avg.lerp(grad, 1 - beta1);
    exp_avg_sq = exp_avg_sq.lerp(grad.square(), 1 - beta2);
    Keep(exp_avg, state_.exp_avg(), first, state_.qmap1(), 0);
    Keep(exp_avg_sq, state_.exp_avg_sq(), second, state_.qmap2(), 1);
    Update(exp_avg, exp_avg_sq);
  }

 private:
  void Keep(const at::Tensor& values, const at::Tensor& moment,
            const BlockCodes& codes, const at::Tensor& map, int use) {
    if (moment.defined()) {
      Write(values, moment, use);
      return;
    }
    const BlockCodes made = EncodeBlocks(values, map);
    codes.codes.copy_(made.codes);
    codes.scales.copy_(made.scales);
  }

  void Write(const at::Tensor& values, const at::Tensor& dst, int use) {
    const bool is_random =
        options_.stochastic_rounding() && dst.scalar_type() == at::kBFloat16;
    dst.copy_(is_random
                  ? RoundStochastically(
                        values, SeedFor(options_, static_cast<int64_t>(step_),
                                        number_, parameter_, use))
                  : values);
  }

  void Update(const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq) {
    const auto [beta1, beta2] = options_.betas();
    const double correction1 = 1 - std::pow(beta1, step_);
    const double correction2 = 1 - std::pow(beta2, step_);
    const at::Tensor shard = parameter_.detach();
    at::Tensor& master = state_.master_param();
    at::Tensor values = master.defined() ? master : shard.to(at::kFloat);
    values = values - values * (options_.lr() * options_.weight_decay());
    const at::Tensor denominator =
        exp_avg_sq.sqrt() / std::sqrt(correction2) + options_.eps();
    values = values - (exp_avg / correction1) * options_.lr() / denominator;
    if (master.defined()) {
      master.copy_(values);
      shard.copy_(values);
    } else {
      Write(values, shard, 2);
    }
  }

  const CompactAdamWOptions& options_;
  CompactAdamWParamState& state_;
  const size_t number_;
  const at::Tensor& parameter_;
  double step_ = 0;
};

}  // namespace

void CompleteCompactAdamWState(const at::Tensor& parameter,
                               const CompactAdamWOptions& options,
                               CompactAdamWParamState& state) {
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard by_shard(kLazyKey);
  const at::Tensor shard = parameter.detach();
  const at::Device device = shard.device();
  const auto zeros = [&](at::ScalarType dtype) {
    return at::zeros_like(shard, shard.options().dtype(dtype));
  };
  if (!state.step().defined()) {
    state.step(at::zeros({}, at::TensorOptions(at::kFloat).device(device)));
  }
  if (options.master_weights() && shard.scalar_type() == at::kBFloat16 &&
      !state.master_param().defined()) {
    state.master_param(shard.to(at::kFloat));
  }
  if (!HasCodes(parameter, options)) {
    const at::ScalarType dtype =
        options.moments() == at::kByte ? at::kFloat : options.moments();
    if (!state.exp_avg().defined()) state.exp_avg(zeros(dtype));
    if (!state.exp_avg_sq().defined()) state.exp_avg_sq(zeros(dtype));
    return;
  }
  if (state.state1().defined()) return;
  state.qmap1(DynamicMap(/*is_signed=*/true, device));
  state.qmap2(DynamicMap(/*is_signed=*/false, device));
  const BlockCodes first = EncodeBlocks(zeros(at::kFloat), state.qmap1());
  const BlockCodes second = EncodeBlocks(zeros(at::kFloat), state.qmap2());
  state.state1(first.codes).absmax1(first.scales);
  state.state2(second.codes).absmax2(second.scales);
}

CompactAdamW::CompactAdamW(
    const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
    const CompactAdamWOptions& defaults)
    : Optimizer(EachParameterOnce(param_groups),
                std::make_unique<CompactAdamWOptions>(defaults)) {
  CheckOptions(defaults);
  for (const auto& group : param_groups_) {
    CheckOptions(GroupOptions(group));
    for (const at::Tensor& parameter : group.params()) {
      CheckParameter(parameter);
    }
  }
}

CompactAdamW::CompactAdamW(std::vector<at::Tensor> params,
                           const CompactAdamWOptions& defaults)
    : CompactAdamW({torch::optim::OptimizerParamGroup(std::move(params))},
                   defaults) {}

at::Tensor CompactAdamW::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  const at::NoGradGuard no_grad;
  for (const auto& group : param_groups_) {
    CheckOptions(GroupOptions(group));
    for (const at::Tensor& parameter : group.params()) {
      CheckReadyToStep(parameter, "CompactAdamW");
    }
  }
  for (const auto& group : param_groups_) {
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.grad().defined()) NoteShardWrite(parameter);
    }
  }
  // From here on every operator means the shards.
  const c10::impl::ExcludeDispatchKeyGuard by_shard(kLazyKey);
  size_t number = 0;
  for (const auto& group : param_groups_) {
    for (const at::Tensor& parameter : group.params()) {
      ++number;
      if (!parameter.grad().defined()) continue;
      auto& slot = state_[parameter.unsafeGetTensorImpl()];
      if (!slot) slot = std::make_unique<CompactAdamWParamState>();
      auto& state = static_cast<CompactAdamWParamState&>(*slot);
      CompleteCompactAdamWState(parameter, GroupOptions(group), state);
      ParameterStep(GroupOptions(group), state, number, parameter).Run();
    }
  }
  return loss;
}

void CompactAdamW::save(torch::serialize::OutputArchive& /*archive*/) const {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "CompactAdamW is not saved by torch::save; "
                              "fsdp::save saves it for any number of ranks");
}

void CompactAdamW::load(torch::serialize::InputArchive& /*archive*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "CompactAdamW is not loaded by torch::load; "
                              "fsdp::load loads it on any number of ranks");
}

uint64_t StateBytes(const CompactAdamW& optimizer) {
  uint64_t num_bytes = 0;
  for (const auto& [key, held] : optimizer.state()) {
    const auto& state = static_cast<const CompactAdamWParamState&>(*held);
    for (const at::Tensor& tensor :
         {state.step(), state.exp_avg(), state.exp_avg_sq(), state.state1(),
          state.absmax1(), state.qmap1(), state.state2(), state.absmax2(),
          state.qmap2(), state.master_param()}) {
      if (tensor.defined()) num_bytes += tensor.nbytes();
    }
  }
  return num_bytes;
}

}  // namespace fsdp::optim
