// SPDX-License-Identifier: Apache-2.0

#include "fsdp/prepare/learning_rate.h"

#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "config/explain/learning_rate.h"
#include "fsdp/optim/fused_adamw.h"
#include "fsdp/optim/muon.h"
#include "fsdp/optim/muon_with_adamw.h"
#include "fsdp/prepare/refusal.h"

namespace fsdp {
namespace {

using OptionalReal = Setting<std::optional<double>>;

// Sets `value` to the config's value unless the group has another.
void Set(const OptionalReal& setting, double otherwise, double& value) {
  if (value == otherwise) value = setting->value_or(value);
}

template <typename Options>
void SetGroup(const LoopConfig& loop, const Options& otherwise,
              Options& group) {
  Set(loop.lr, otherwise.lr(), group.lr());
  Set(loop.weight_decay, otherwise.weight_decay(), group.weight_decay());
  Set(loop.eps, otherwise.eps(), group.eps());
  Set(loop.beta1, std::get<0>(otherwise.betas()), std::get<0>(group.betas()));
  Set(loop.beta2, std::get<1>(otherwise.betas()), std::get<1>(group.betas()));
}

// False for an optimizer with other options.
template <typename Options>
bool SetAll(const LoopConfig& loop, torch::optim::Optimizer& optimizer) {
  auto* defaults = dynamic_cast<Options*>(&optimizer.defaults());
  if (defaults == nullptr) return false;
  const Options otherwise = *defaults;
  SetGroup(loop, otherwise, *defaults);
  for (torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    SetGroup(loop, otherwise, static_cast<Options&>(group.options()));
  }
  return true;
}

// The numbers are AdamW's. Muon's groups take lr and weight_decay too, but only
// with the rule that scales their updates as AdamW's.
void SetMuonWithAdamW(const LoopConfig& loop, optim::MuonWithAdamW& optimizer) {
  const FusedAdamWOptions adamw;
  const auto muon = static_cast<optim::MuonOptions&>(optimizer.defaults());
  for (torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    if (auto* options = dynamic_cast<FusedAdamWOptions*>(&group.options())) {
      SetGroup(loop, adamw, *options);
      continue;
    }
    auto& options = static_cast<optim::MuonOptions&>(group.options());
    if (options.adjust_lr_fn() != "match_rms_adamw") continue;
    Set(loop.lr, muon.lr(), options.lr());
    Set(loop.weight_decay, muon.weight_decay(), options.weight_decay());
  }
}

}  // namespace

LearningRate::LearningRate(torch::optim::Optimizer& optimizer,
                           const LrSchedule& schedule, int64_t num_steps)
    : LRScheduler(optimizer),
      schedule_(schedule),
      num_steps_(num_steps),
      base_(get_current_lrs()) {
  set_step(0);
}

void LearningRate::set_step(int64_t step) {
  step_count_ = static_cast<unsigned>(step);
  LRScheduler::step();
}

absl::StatusOr<StateDict> LearningRate::state_dict() {
  // LRScheduler counts the coming step.
  return StateDict{{"last_epoch", int64_t{step_count_} - 1}};
}

absl::Status LearningRate::load_state_dict(const StateDict& state) {
  const StateValue* value = state.find("last_epoch");
  const auto* step = value == nullptr ? nullptr : value->get_if<int64_t>();
  if (step == nullptr || *step < 0 ||
      *step >= std::numeric_limits<unsigned>::max()) {
    return absl::InvalidArgumentError(
        "the state of a learning rate's schedule has no last_epoch that is a "
        "number of steps from 0");
  }
  set_step(*step);
  return absl::OkStatus();
}

std::vector<double> LearningRate::get_lrs() {
  const double factor = learning_rate_factor(
      schedule_, static_cast<int64_t>(step_count_), num_steps_);
  std::vector<double> rates = base_;
  for (double& rate : rates) rate *= factor;
  return rates;
}

bool needs_num_steps(const LrSchedule& schedule) {
  return !schedule.total_steps.has_value() &&
         (schedule.decay != LrDecay::kConstant ||
          (schedule.warmup_steps == 0 && schedule.warmup_ratio > 0));
}

absl::Status set_hyperparameters(const LoopConfig& loop,
                                 torch::optim::Optimizer& optimizer) {
  if (SetAll<torch::optim::AdamWOptions>(loop, optimizer)) {
    return absl::OkStatus();
  }
  const auto* fused =
      dynamic_cast<const FusedAdamWOptions*>(&optimizer.defaults());
  if (fused != nullptr && fused->decoupled_weight_decay()) {
    SetAll<FusedAdamWOptions>(loop, optimizer);
    return absl::OkStatus();
  }
  if (auto* muon = dynamic_cast<optim::MuonWithAdamW*>(&optimizer)) {
    SetMuonWithAdamW(loop, *muon);
    return absl::OkStatus();
  }
  for (const auto& [name, setting] :
       {std::pair("lr", &loop.lr),
        std::pair("weight_decay", &loop.weight_decay),
        std::pair("beta1", &loop.beta1), std::pair("beta2", &loop.beta2),
        std::pair("eps", &loop.eps)}) {
    if (!(*setting)->has_value()) continue;
    return Refusal(*setting, name, "is ", ***setting,
                   " and for AdamW, but PrepareOptions::optimizer is no "
                   "torch::optim::AdamW, fsdp::FusedAdamW or "
                   "fsdp::optim::MuonWithAdamW; use one of them, or clear lr, "
                   "weight_decay, beta1, beta2 and eps of "
                   "TrainConfig::loop to train with numbers of your own");
  }
  return absl::OkStatus();
}

torch::optim::AdamWOptions adamw_options(
    const LoopConfig& loop, const torch::optim::AdamWOptions& otherwise) {
  torch::optim::AdamWOptions options = otherwise;
  SetGroup(loop, otherwise, options);
  return options;
}

}  // namespace fsdp
