// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/optimizer_kind.h"

#include <algorithm>
#include <optional>
#include <typeinfo>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/full_like.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Type.h"
#include "fsdp/checkpoint/state/step_number.h"
#include "fsdp/checkpoint/state/tensor_copies.h"
#include "fsdp/optim/compact_adamw.h"
#include "fsdp/optim/fused_adamw.h"
#include "fsdp/optim/muon.h"
#include "fsdp/optim/muon_with_adamw.h"
#include "torch/optim/adagrad.h"
#include "torch/optim/adam.h"
#include "torch/optim/adamw.h"
#include "torch/optim/rmsprop.h"
#include "torch/optim/sgd.h"

namespace fsdp {
namespace {

using Betas = Hyperparameter::Betas;
using Coefficients = Hyperparameter::Coefficients;
using Fixed = Hyperparameter::Fixed;
using Ignored = Hyperparameter::Ignored;
using Word = Hyperparameter::Word;
using torch::optim::Adagrad;
using torch::optim::Adam;
using torch::optim::AdamW;
using torch::optim::RMSprop;
using torch::optim::SGD;

// An options class's accessors; only those that a table names are instantiated.
template <typename T>
struct OptionsField {
  static T& Cast(OptimizerOptions& o) { return static_cast<T&>(o); }
  static double& lr(OptimizerOptions& o) { return Cast(o).lr(); }
  static double& eps(OptimizerOptions& o) { return Cast(o).eps(); }
  static double& decay(OptimizerOptions& o) { return Cast(o).weight_decay(); }
  static double& momentum(OptimizerOptions& o) { return Cast(o).momentum(); }
  static double& dampening(OptimizerOptions& o) { return Cast(o).dampening(); }
  static double& alpha(OptimizerOptions& o) { return Cast(o).alpha(); }
  static double& lr_decay(OptimizerOptions& o) { return Cast(o).lr_decay(); }
  static double& accumulator(OptimizerOptions& o) {
    return Cast(o).initial_accumulator_value();
  }
  static Betas& betas(OptimizerOptions& o) { return Cast(o).betas(); }
  static bool& amsgrad(OptimizerOptions& o) { return Cast(o).amsgrad(); }
  static bool& maximize(OptimizerOptions& o) { return Cast(o).maximize(); }
  static bool& decoupled(OptimizerOptions& o) {
    return Cast(o).decoupled_weight_decay();
  }
  static bool& nesterov(OptimizerOptions& o) { return Cast(o).nesterov(); }
  static bool& centered(OptimizerOptions& o) { return Cast(o).centered(); }
  static Coefficients& coefficients(OptimizerOptions& o) {
    return Cast(o).ns_coefficients();
  }
  static int64_t& num_steps(OptimizerOptions& o) { return Cast(o).ns_steps(); }
  static Word& lr_rule(OptimizerOptions& o) { return Cast(o).adjust_lr_fn(); }

  static bool is_amsgrad(OptimizerOptions& o) { return amsgrad(o); }
  static bool is_centered(OptimizerOptions& o) { return centered(o); }
  static bool has_momentum(OptimizerOptions& o) { return momentum(o) != 0; }
  static double start(OptimizerOptions& o) { return accumulator(o); }
};

// The same for a state class.
template <typename T>
struct StateField {
  static T& Cast(ParamState& s) { return static_cast<T&>(s); }
  static int64_t& step_number(ParamState& s) { return Cast(s).step(); }
  static at::Tensor& step_tensor(ParamState& s) { return Cast(s).step(); }
  static at::Tensor& exp_avg(ParamState& s) { return Cast(s).exp_avg(); }
  static at::Tensor& exp_avg_sq(ParamState& s) { return Cast(s).exp_avg_sq(); }
  static at::Tensor& max_exp_avg_sq(ParamState& s) {
    return Cast(s).max_exp_avg_sq();
  }
  static at::Tensor& momentum(ParamState& s) {
    return Cast(s).momentum_buffer();
  }
  static at::Tensor& square_avg(ParamState& s) { return Cast(s).square_avg(); }
  static at::Tensor& state1(ParamState& s) { return Cast(s).state1(); }
  static at::Tensor& absmax1(ParamState& s) { return Cast(s).absmax1(); }
  static at::Tensor& qmap1(ParamState& s) { return Cast(s).qmap1(); }
  static at::Tensor& state2(ParamState& s) { return Cast(s).state2(); }
  static at::Tensor& absmax2(ParamState& s) { return Cast(s).absmax2(); }
  static at::Tensor& qmap2(ParamState& s) { return Cast(s).qmap2(); }
  static at::Tensor& master_param(ParamState& s) {
    return Cast(s).master_param();
  }
  static at::Tensor& grad_avg(ParamState& s) { return Cast(s).grad_avg(); }
  static at::Tensor& sum(ParamState& s) { return Cast(s).sum(); }
  static std::unique_ptr<ParamState> Make(const ParamState* from) {
    return from == nullptr ? std::make_unique<T>()
                           : std::make_unique<T>(static_cast<const T&>(*from));
  }
  // The same, for a state that counts steps in a number.
  static std::unique_ptr<ParamState> MakeCounted(const ParamState* from) {
    return from == nullptr
               ? std::make_unique<Counted<T>>()
               : std::make_unique<Counted<T>>(static_cast<const T&>(*from));
  }
};

Ignored NotSet() { return {StateValue()}; }
Ignored No() { return {StateValue(false)}; }
Fixed Always(bool value) { return {StateValue(value)}; }

// Adam, AdamW and FusedAdamW: only the last has the options maximize and
// decoupled_weight_decay.
template <typename Options, typename State>
OptimizerKind AdamKind(decltype(Hyperparameter::access) maximize,
                       decltype(Hyperparameter::access) decoupled,
                       Ignored fused) {
  using O = OptionsField<Options>;
  using S = StateField<State>;
  OptimizerKind kind;
  kind.hyperparameters = {{"lr", &O::lr},
                          {"betas", &O::betas},
                          {"eps", &O::eps},
                          {"weight_decay", &O::decay},
                          {"amsgrad", &O::amsgrad},
                          {"maximize", std::move(maximize)},
                          {"foreach", NotSet()},
                          {"capturable", No()},
                          {"differentiable", No()},
                          {"fused", std::move(fused)},
                          {"decoupled_weight_decay", std::move(decoupled)}};
  kind.tensors = {{"exp_avg", &S::exp_avg},
                  {"exp_avg_sq", &S::exp_avg_sq},
                  {"max_exp_avg_sq", &S::max_exp_avg_sq, &O::is_amsgrad}};
  kind.make_state = &S::Make;
  return kind;
}

template <typename State>
void CountInNumber(OptimizerKind& kind) {
  kind.step_number = &StateField<State>::step_number;
  kind.make_state = &StateField<State>::MakeCounted;
}

OptimizerKind MakeAdam() {
  OptimizerKind kind =
      AdamKind<torch::optim::AdamOptions, torch::optim::AdamParamState>(
          Always(false), Always(false), NotSet());
  CountInNumber<torch::optim::AdamParamState>(kind);
  return kind;
}

OptimizerKind MakeAdamW() {
  OptimizerKind kind =
      AdamKind<torch::optim::AdamWOptions, torch::optim::AdamWParamState>(
          Always(false), Always(true), NotSet());
  CountInNumber<torch::optim::AdamWParamState>(kind);
  return kind;
}

OptimizerKind MakeFusedAdamW() {
  using O = OptionsField<FusedAdamWOptions>;
  OptimizerKind kind = AdamKind<FusedAdamWOptions, FusedAdamWParamState>(
      &O::maximize, &O::decoupled, {StateValue(true)});
  kind.step_tensor = &StateField<FusedAdamWParamState>::step_tensor;
  return kind;
}

OptimizerKind MakeSgd() {
  using O = OptionsField<torch::optim::SGDOptions>;
  using S = StateField<torch::optim::SGDParamState>;
  OptimizerKind kind;
  kind.hyperparameters = {{"lr", &O::lr},
                          {"momentum", &O::momentum},
                          {"dampening", &O::dampening},
                          {"weight_decay", &O::decay},
                          {"nesterov", &O::nesterov},
                          {"maximize", Always(false)},
                          {"foreach", NotSet()},
                          {"differentiable", No()},
                          {"fused", NotSet()}};
  kind.tensors = {{"momentum_buffer", &S::momentum, &O::has_momentum}};
  kind.make_state = &S::Make;
  return kind;
}

OptimizerKind MakeRmsprop() {
  using O = OptionsField<torch::optim::RMSpropOptions>;
  using S = StateField<torch::optim::RMSpropParamState>;
  OptimizerKind kind;
  kind.hyperparameters = {{"lr", &O::lr},
                          {"momentum", &O::momentum},
                          {"alpha", &O::alpha},
                          {"eps", &O::eps},
                          {"centered", &O::centered},
                          {"weight_decay", &O::decay},
                          {"capturable", No()},
                          {"foreach", NotSet()},
                          {"maximize", Always(false)},
                          {"differentiable", No()}};
  kind.tensors = {{"square_avg", &S::square_avg},
                  {"momentum_buffer", &S::momentum, &O::has_momentum},
                  {"grad_avg", &S::grad_avg, &O::is_centered}};
  CountInNumber<torch::optim::RMSpropParamState>(kind);
  return kind;
}

OptimizerKind MakeAdagrad() {
  using O = OptionsField<torch::optim::AdagradOptions>;
  using S = StateField<torch::optim::AdagradParamState>;
  OptimizerKind kind;
  kind.hyperparameters = {{"lr", &O::lr},
                          {"lr_decay", &O::lr_decay},
                          {"eps", &O::eps},
                          {"weight_decay", &O::decay},
                          {"initial_accumulator_value", &O::accumulator},
                          {"foreach", NotSet()},
                          {"maximize", Always(false)},
                          {"differentiable", No()},
                          {"fused", NotSet()}};
  kind.tensors = {{"sum", &S::sum, nullptr, &O::start}};
  CountInNumber<torch::optim::AdagradParamState>(kind);
  return kind;
}

OptimizerKind MakeMuon() {
  using O = OptionsField<optim::MuonOptions>;
  using S = StateField<optim::MuonParamState>;
  OptimizerKind kind;
  kind.hyperparameters = {{"lr", &O::lr},
                          {"weight_decay", &O::decay},
                          {"momentum", &O::momentum},
                          {"nesterov", &O::nesterov},
                          {"ns_coefficients", &O::coefficients},
                          {"eps", &O::eps},
                          {"ns_steps", &O::num_steps},
                          {"adjust_lr_fn", &O::lr_rule}};
  kind.tensors = {{"momentum_buffer", &S::momentum}};
  kind.make_state = &S::Make;
  return kind;
}

OptimizerKind MakeCompactAdamW() {
  using O = OptionsField<optim::CompactAdamWOptions>;
  using S = StateField<optim::CompactAdamWParamState>;
  using Layout = StateTensor::Layout;
  OptimizerKind kind;
  kind.hyperparameters = {{"lr", &O::lr},
                          {"betas", &O::betas},
                          {"eps", &O::eps},
                          {"weight_decay", &O::decay}};
  const auto tensor = [&](const char* key, at::Tensor& (*access)(ParamState&),
                          Layout layout, const char* other_key) {
    kind.tensors.push_back({.key = key,
                            .access = access,
                            .layout = layout,
                            .other_key = other_key});
  };
  tensor("exp_avg", &S::exp_avg, Layout::kParameter, "state1");
  tensor("exp_avg_sq", &S::exp_avg_sq, Layout::kParameter, "state2");
  tensor("state1", &S::state1, Layout::kParameter, nullptr);
  tensor("absmax1", &S::absmax1, Layout::kRows, nullptr);
  tensor("qmap1", &S::qmap1, Layout::kWhole, nullptr);
  tensor("state2", &S::state2, Layout::kParameter, nullptr);
  tensor("absmax2", &S::absmax2, Layout::kRows, nullptr);
  tensor("qmap2", &S::qmap2, Layout::kWhole, nullptr);
  tensor("master_param", &S::master_param, Layout::kParameter, nullptr);
  kind.step_tensor = &S::step_tensor;
  kind.make_state = &S::Make;
  kind.complete = [](ParamState& state, OptimizerOptions& options,
                     const at::Tensor& parameter) {
    optim::CompleteCompactAdamWState(
        parameter, static_cast<const optim::CompactAdamWOptions&>(options),
        static_cast<optim::CompactAdamWParamState&>(state));
  };
  return kind;
}

template <typename T>
bool Is(const torch::optim::Optimizer& optimizer) {
  return dynamic_cast<const T*>(&optimizer) != nullptr;
}

}  // namespace

std::vector<const StateTensor*> OptimizerKind::TensorsUnder(
    OptimizerOptions& options) const {
  std::vector<const StateTensor*> result;
  for (const StateTensor& tensor : tensors) {
    if (tensor.used == nullptr || tensor.used(options)) {
      result.push_back(&tensor);
    }
  }
  return result;
}

bool OptimizerKind::HasState(OptimizerOptions& options) const {
  return has_step() || !TensorsUnder(options).empty();
}

std::unique_ptr<ParamState> OptimizerKind::CompleteState(
    const ParamState* state, const at::Tensor& parameter,
    OptimizerOptions& options) const {
  const at::NoGradGuard no_grad;
  std::unique_ptr<ParamState> complete_state = make_state(state);
  if (complete != nullptr) {
    complete(*complete_state, options, parameter);
    return complete_state;
  }
  for (const StateTensor* tensor : TensorsUnder(options)) {
    at::Tensor& value = tensor->access(*complete_state);
    if (value.defined()) continue;
    const double initial =
        tensor->initial == nullptr ? 0 : tensor->initial(options);
    value = at::full_like(parameter.detach(), initial, {},
                          at::MemoryFormat::Preserve);
  }
  if (step_tensor != nullptr && !step_tensor(*complete_state).defined()) {
    step_tensor(*complete_state) =
        at::zeros({}, at::TensorOptions(at::kFloat).device(parameter.device()));
  }
  return complete_state;
}

bool OptimizerKind::IsComplete(ParamState* state,
                               OptimizerOptions& options) const {
  if (state == nullptr) return false;
  if (step_number != nullptr && FindStepCounter(*state) == nullptr)
    return false;
  if (step_tensor != nullptr && !step_tensor(*state).defined()) return false;
  if (complete != nullptr) return true;
  const std::vector<const StateTensor*> needed = TensorsUnder(options);
  return std::all_of(needed.begin(), needed.end(), [&](const auto* tensor) {
    return tensor->access(*state).defined();
  });
}

absl::StatusOr<std::vector<const OptimizerKind*>> FindOptimizerKinds(
    const torch::optim::Optimizer& optimizer) {
  static const auto* const kAdam = new OptimizerKind(MakeAdam());
  static const auto* const kAdamW = new OptimizerKind(MakeAdamW());
  static const auto* const kFusedAdamW = new OptimizerKind(MakeFusedAdamW());
  static const auto* const kCompactAdamW =
      new OptimizerKind(MakeCompactAdamW());
  static const auto* const kMuon = new OptimizerKind(MakeMuon());
  static const auto* const kSgd = new OptimizerKind(MakeSgd());
  static const auto* const kRmsprop = new OptimizerKind(MakeRmsprop());
  static const auto* const kAdagrad = new OptimizerKind(MakeAdagrad());
  const auto for_all = [&](const OptimizerKind* kind) {
    return std::vector(optimizer.param_groups().size(), kind);
  };
  if (Is<Adam>(optimizer)) return for_all(kAdam);
  if (Is<AdamW>(optimizer)) return for_all(kAdamW);
  if (Is<FusedAdamW>(optimizer)) return for_all(kFusedAdamW);
  if (Is<optim::CompactAdamW>(optimizer)) return for_all(kCompactAdamW);
  if (Is<optim::Muon>(optimizer)) return for_all(kMuon);
  if (Is<SGD>(optimizer)) return for_all(kSgd);
  if (Is<RMSprop>(optimizer)) return for_all(kRmsprop);
  if (Is<Adagrad>(optimizer)) return for_all(kAdagrad);
  if (Is<optim::MuonWithAdamW>(optimizer)) {
    std::vector<const OptimizerKind*> kinds;
    for (const auto& group : optimizer.param_groups()) {
      const bool is_muon =
          dynamic_cast<const optim::MuonOptions*>(&group.options()) != nullptr;
      kinds.push_back(is_muon ? kMuon : kFusedAdamW);
    }
    return kinds;
  }
  return absl::UnimplementedError(absl::StrCat(
      "the state of optimizer ", c10::demangle(typeid(optimizer).name()),
      " is not known; SGD, Adam, AdamW, RMSprop, Adagrad, FusedAdamW, "
      "CompactAdamW, Muon and MuonWithAdamW are"));
}

}  // namespace fsdp
