// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/optimizer_state.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/format/value/value.h"
#include "fsdp/checkpoint/state/loaded_optimizer.h"
#include "fsdp/checkpoint/state/module_entries.h"
#include "fsdp/checkpoint/state/plain_value.h"
#include "fsdp/checkpoint/state/step_number.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/module/names.h"

namespace fsdp {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

void* StateKey(const at::Tensor& parameter) {
  return parameter.unsafeGetTensorImpl();
}

// The accessors that read options take a mutable reference.
OptimizerOptions& GroupOptions(const OptimizerParamGroup& group) {
  return const_cast<OptimizerOptions&>(group.options());
}

at::Tensor StepAsTensor(const OptimizerKind& kind, ParamState& state) {
  if (kind.step_tensor != nullptr) return kind.step_tensor(state);
  if (StepCounter* counter = FindStepCounter(state))
    return StepTensor(*counter);
  // A frozen parameter's state.
  return at::full({}, static_cast<double>(kind.step_number(state)),
                  at::TensorOptions(at::kFloat));
}

// How a state tensor lies on the mesh; absent if it is the same on every rank.
std::optional<DTensorSpec> StateSpec(const StateTensor& tensor,
                                     const at::Tensor& value,
                                     std::optional<DTensorSpec> parameter) {
  if (!parameter.has_value()) return parameter;
  switch (tensor.layout) {
    case StateTensor::Layout::kParameter:
      break;
    case StateTensor::Layout::kRows:
      parameter->shape = {parameter->shape[0], value.size(1)};
      parameter->stride = {value.size(1), 1};
      break;
    case StateTensor::Layout::kWhole:
      return std::nullopt;
  }
  return parameter;
}

StateDict ParameterState(const OptimizerKind& kind, ParamState& state,
                         const at::Tensor& parameter) {
  const std::optional<DTensorSpec> spec = FindSpec(parameter);
  StateDict dict;
  if (kind.has_step()) dict["step"] = StepAsTensor(kind, state);
  for (const StateTensor& tensor : kind.tensors) {
    const at::Tensor& value = tensor.access(state);
    if (!value.defined()) continue;
    const std::optional<DTensorSpec> own = StateSpec(tensor, value, spec);
    dict[tensor.key] = own.has_value()
                           ? StateValue(DTensor(value.detach(), *own))
                           : StateValue(value.detach());
  }
  return dict;
}

void AddMissingState(const std::vector<const OptimizerKind*>& kinds,
                     Optimizer& optimizer) {
  for (size_t g = 0; g < kinds.size(); ++g) {
    const OptimizerParamGroup& group = optimizer.param_groups()[g];
    const OptimizerKind& kind = *kinds[g];
    if (!kind.HasState(GroupOptions(group))) continue;
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.requires_grad()) continue;
      std::unique_ptr<ParamState>& state =
          optimizer.state()[StateKey(parameter)];
      // Tensors from earlier state dicts stay tied to a state that stays.
      if (kind.IsComplete(state.get(), GroupOptions(group))) continue;
      state = kind.CompleteState(state.get(), parameter, GroupOptions(group));
    }
  }
}

// Whether the value is a tensor of 8 bits; absent values have none.
bool HasCodes(const StateValue* value) {
  if (value == nullptr) return true;
  if (const auto* sharded = value->get_if<DTensor>()) {
    return sharded->scalar_type() == at::kByte;
  }
  const auto* tensor = value->get_if<at::Tensor>();
  return tensor != nullptr && tensor->defined() &&
         tensor->scalar_type() == at::kByte;
}

// The scales of whole tensors are one list in other libraries.
StateValue InLayout(const StateTensor& tensor, const at::Tensor& dst,
                    const StateValue& src) {
  const auto* list = src.get_if<at::Tensor>();
  if (tensor.layout != StateTensor::Layout::kRows || list == nullptr ||
      !list->defined() || list->dim() != 1 || dst.size(1) == 0 ||
      list->numel() % dst.size(1) != 0) {
    return src;
  }
  return StateValue(list->view({-1, dst.size(1)}));
}

}  // namespace

absl::StatusOr<StateDict> OptimizerState(const torch::nn::Module& module,
                                         Optimizer& optimizer) {
  DCP_ASSIGN_OR_RETURN(const std::vector<const OptimizerKind*> kinds,
                       FindOptimizerKinds(optimizer));
  return CatchTorch([&] {
    const std::vector<std::vector<std::string>> names =
        optimizer_parameter_names(optimizer, module);
    AddMissingState(kinds, optimizer);
    StateDict state;
    StateList groups;
    for (size_t g = 0; g < names.size(); ++g) {
      const OptimizerParamGroup& group = optimizer.param_groups()[g];
      StateList params;
      for (size_t p = 0; p < names[g].size(); ++p) {
        params.emplace_back(names[g][p]);
        const at::Tensor& parameter = group.params()[p];
        const auto found = optimizer.state().find(StateKey(parameter));
        if (found == optimizer.state().end()) continue;
        state[names[g][p]] =
            ParameterState(*kinds[g], *found->second, parameter);
      }
      StateDict dict = kinds[g]->GetHyperparameters(GroupOptions(group));
      dict["params"] = std::move(params);
      groups.emplace_back(std::move(dict));
    }
    return StateDict(
        {{"state", std::move(state)}, {"param_groups", std::move(groups)}});
  });
}

// Makes an OptimizerPlan; one use.
class OptimizerPlanner {
 public:
  OptimizerPlanner(const torch::nn::Module& module, const Optimizer& optimizer,
                   const StateDictOptions& options, const CopyRules& rules,
                   Mismatches& mismatches)
      : optimizer_(optimizer),
        strict_(options.strict),
        rules_(rules),
        mismatches_(mismatches) {
    for (const ModuleEntry& entry : ListEntries(module)) {
      names_of_[StateKey(entry.tensor)].push_back(entry.name);
      known_.insert(entry.name);
    }
  }

  absl::StatusOr<OptimizerPlan> Run(std::vector<const OptimizerKind*> kinds,
                                    const LoadedOptimizer& loaded) {
    plan_.kinds_ = std::move(kinds);
    for (size_t g = 0; g < loaded.groups.size(); ++g) {
      for (const std::string& name : loaded.groups[g].names) {
        group_of_.emplace(name, g);
      }
    }
    for (size_t g = 0; g < plan_.kinds_.size(); ++g) {
      DCP_RETURN_IF_ERROR(
          PlanGroup(optimizer_.param_groups()[g], *plan_.kinds_[g], loaded));
    }
    AddUnknownNames(loaded);
    return std::move(plan_);
  }

 private:
  void Missing(const std::string& name) {
    if (strict_) mismatches_.missing.push_back(name);
  }
  void Unexpected(const std::string& name) {
    if (strict_) mismatches_.unexpected.push_back(name);
  }
  const std::vector<std::string>& FindNames(const at::Tensor& parameter) {
    return names_of_[StateKey(parameter)];
  }

  absl::Status PlanGroup(const OptimizerParamGroup& group,
                         const OptimizerKind& kind,
                         const LoadedOptimizer& loaded);
  std::set<size_t> FindLoadedGroups(const OptimizerParamGroup& group,
                                    const LoadedOptimizer& loaded);
  absl::StatusOr<StateDict> MergeHyperparameters(const std::set<size_t>& groups,
                                                 const LoadedOptimizer& loaded);
  absl::Status PlanParameter(const at::Tensor& parameter,
                             const OptimizerKind& kind,
                             OptimizerOptions& options,
                             const LoadedOptimizer& loaded);
  absl::Status PlanState(const at::Tensor& parameter, const OptimizerKind& kind,
                         OptimizerOptions& options, const std::string& name,
                         const StateDict& values);
  void PlanStep(const std::string& name, const StateDict& values,
                OptimizerPlan::NewState& target);
  void AddUnknownNames(const LoadedOptimizer& loaded);

  const Optimizer& optimizer_;
  const bool strict_;
  const CopyRules rules_;
  Mismatches& mismatches_;
  absl::flat_hash_map<const void*, std::vector<std::string>> names_of_;
  absl::flat_hash_set<std::string> known_;
  absl::flat_hash_map<std::string, size_t> group_of_;  // loaded
  OptimizerPlan plan_;
};

// A group without parameters has no names to match, so it is matched only if
// the dict has exactly one such group too.
std::set<size_t> OptimizerPlanner::FindLoadedGroups(
    const OptimizerParamGroup& group, const LoadedOptimizer& loaded) {
  std::set<size_t> groups;
  for (const at::Tensor& parameter : group.params()) {
    const std::vector<std::string>& names = FindNames(parameter);
    const auto name = std::find_if(
        names.begin(), names.end(),
        [&](const std::string& n) { return group_of_.contains(n); });
    if (name != names.end()) {
      groups.insert(group_of_[*name]);
    } else if (parameter.requires_grad()) {
      // Python's optimizers are often created without the frozen parameters.
      Missing(absl::StrCat("param_groups.", names[0]));
    }
  }
  if (!group.params().empty()) return groups;
  for (size_t g = 0; g < loaded.groups.size(); ++g) {
    if (loaded.groups[g].names.empty()) groups.insert(g);
  }
  if (groups.size() != 1 ||
      loaded.groups.size() != optimizer_.param_groups().size()) {
    mismatches_.wrong.push_back(
        absl::StrCat("a param group of the optimizer has no parameters; it can "
                     "be set only if exactly one group in the dict has none, "
                     "and the dict is only from this optimizer"));
    groups.clear();
  }
  return groups;
}

absl::StatusOr<StateDict> OptimizerPlanner::MergeHyperparameters(
    const std::set<size_t>& groups, const LoadedOptimizer& loaded) {
  StateDict merged;
  dcp::ValueArena arena;
  absl::flat_hash_set<std::string> differing;
  for (const size_t g : groups) {
    for (const auto& [key, value] : loaded.groups[g].hyperparameters) {
      StateValue& slot = merged[key];
      if (slot.is_none()) slot = value;
      if (value.get_if<at::Tensor>() != nullptr) continue;
      DCP_ASSIGN_OR_RETURN(const dcp::Value first, ToValue(slot, arena));
      DCP_ASSIGN_OR_RETURN(const dcp::Value other, ToValue(value, arena));
      if (dcp::DeepEqual(first, other) || !differing.insert(key).second)
        continue;
      mismatches_.wrong.push_back(absl::StrCat(
          key, " is ", dcp::ToString(first),
          " for some parameters of a param group and ", dcp::ToString(other),
          " for others, such as ",
          loaded.groups[g].names.empty() ? "none" : loaded.groups[g].names[0]));
    }
  }
  return merged;
}

absl::Status OptimizerPlanner::PlanGroup(const OptimizerParamGroup& group,
                                         const OptimizerKind& kind,
                                         const LoadedOptimizer& loaded) {
  DCP_ASSIGN_OR_RETURN(
      StateDict values,
      MergeHyperparameters(FindLoadedGroups(group, loaded), loaded));
  const std::unique_ptr<OptimizerOptions> options = group.options().clone();
  std::vector<std::string> problems;
  kind.SetHyperparameters(values, *options, problems);
  for (const std::string& problem : problems) {
    mismatches_.wrong.push_back(absl::StrCat(
        "param_groups[", plan_.hyperparameters_.size(), "].", problem));
  }
  plan_.hyperparameters_.push_back(std::move(values));
  for (const at::Tensor& parameter : group.params()) {
    if (!parameter.requires_grad() || !kind.HasState(*options)) continue;
    DCP_RETURN_IF_ERROR(PlanParameter(parameter, kind, *options, loaded));
  }
  return absl::OkStatus();
}

absl::Status OptimizerPlanner::PlanParameter(const at::Tensor& parameter,
                                             const OptimizerKind& kind,
                                             OptimizerOptions& options,
                                             const LoadedOptimizer& loaded) {
  for (const std::string& name : FindNames(parameter)) {
    const auto found = loaded.state.find(name);
    if (found == loaded.state.end()) continue;
    return PlanState(parameter, kind, options, name, found->second);
  }
  Missing(absl::StrCat("state.", FindNames(parameter)[0]));
  return absl::OkStatus();
}

absl::Status OptimizerPlanner::PlanState(const at::Tensor& parameter,
                                         const OptimizerKind& kind,
                                         OptimizerOptions& options,
                                         const std::string& name,
                                         const StateDict& values) {
  const auto old = optimizer_.state().find(StateKey(parameter));
  OptimizerPlan::NewState target;
  target.key = StateKey(parameter);
  target.kind = &kind;
  target.state = kind.CompleteState(
      old == optimizer_.state().end() ? nullptr : old->second.get(), parameter,
      options);
  const std::string prefix = absl::StrCat("state.", name, ".");
  absl::flat_hash_set<std::string> used;
  DCP_ASSIGN_OR_RETURN(const std::optional<DTensorSpec> spec,
                       CatchTorch([&] { return FindSpec(parameter); }));
  if (kind.has_step()) {
    used.insert("step");
    PlanStep(prefix + "step", values, target);
  }
  for (const StateTensor* tensor : kind.TensorsUnder(options)) {
    // Parameters of one kind may have different tensors.
    const at::Tensor& dst = tensor->access(*target.state);
    if (kind.complete != nullptr && !dst.defined()) continue;
    const char* key = tensor->key;
    if (tensor->other_key != nullptr && values.find(key) == nullptr &&
        !HasCodes(values.find(tensor->other_key))) {
      key = tensor->other_key;
    }
    used.insert(key);
    const StateValue* src = values.find(key);
    if (src == nullptr || src->is_none()) {
      Missing(prefix + tensor->key);
      continue;
    }
    plan_.copies.push_back({.name = prefix + tensor->key,
                            .dst = dst.detach(),
                            .spec = StateSpec(*tensor, dst, spec),
                            .src = InLayout(*tensor, dst, *src)});
    CheckCopy(plan_.copies.back(), rules_, mismatches_);
    if (dst.scalar_type() == at::kByte && !HasCodes(src)) {
      mismatches_.wrong.push_back(
          absl::StrCat(prefix, key,
                       " has numbers, but codes in 8 bits are "
                       "expected"));
    }
  }
  for (const auto& [key, value] : values) {
    if (!used.contains(key) && !value.is_none()) Unexpected(prefix + key);
  }
  plan_.states_.push_back(std::move(target));
  return absl::OkStatus();
}

// Python before 1.12 counted steps in an int.
void OptimizerPlanner::PlanStep(const std::string& name,
                                const StateDict& values,
                                OptimizerPlan::NewState& target) {
  const OptimizerKind& kind = *target.kind;
  const StateValue* found = values.find("step");
  if (found == nullptr || found->is_none()) return Missing(name);
  StateValue src = *found;
  if (const auto* number = src.get_if<int64_t>()) {
    src = at::full({}, static_cast<double>(*number),
                   at::TensorOptions(at::kFloat));
  } else if (const auto* real = src.get_if<double>()) {
    src = at::full({}, *real, at::TensorOptions(at::kFloat));
  }
  at::Tensor dst;
  if (kind.step_tensor != nullptr) {
    dst = kind.step_tensor(*target.state);
  } else {
    target.step = dst = at::empty({}, at::TensorOptions(at::kDouble));
  }
  // A plain tensor, even if the others are DTensors.
  plan_.copies.push_back({.name = name, .dst = dst, .spec = {}, .src = src});
  CheckCopy(plan_.copies.back(), rules_, mismatches_);
}

void OptimizerPlanner::AddUnknownNames(const LoadedOptimizer& loaded) {
  std::set<std::string> unknown;
  for (const auto& [name, values] : loaded.state) {
    if (!known_.contains(name)) unknown.insert(absl::StrCat("state.", name));
  }
  for (const auto& [name, group] : group_of_) {
    if (!known_.contains(name)) {
      unknown.insert(absl::StrCat("param_groups.", name));
    }
  }
  for (const std::string& name : unknown) Unexpected(name);
}

absl::Status OptimizerPlan::Commit(Optimizer& optimizer) && {
  return CatchTorch([&] {
    const at::NoGradGuard no_grad;
    for (size_t g = 0; g < hyperparameters_.size(); ++g) {
      std::vector<std::string> problems;
      kinds_[g]->SetHyperparameters(
          hyperparameters_[g], optimizer.param_groups()[g].options(), problems);
    }
    for (NewState& target : states_) {
      if (target.step.defined()) {
        target.kind->step_number(*target.state) =
            std::llround(target.step.item<double>());
      }
      optimizer.state()[target.key] = std::move(target.state);
    }
  });
}

absl::StatusOr<OptimizerPlan> PlanOptimizer(const torch::nn::Module& module,
                                            const Optimizer& optimizer,
                                            const StateDict& state,
                                            const StateDictOptions& options,
                                            const CopyRules& rules,
                                            Mismatches& mismatches) {
  DCP_ASSIGN_OR_RETURN(std::vector<const OptimizerKind*> kinds,
                       FindOptimizerKinds(optimizer));
  return CatchTorch([&]() -> absl::StatusOr<OptimizerPlan> {
    DCP_ASSIGN_OR_RETURN(const LoadedOptimizer loaded,
                         ParseOptimizerState(state, optimizer_parameter_names(
                                                        optimizer, module)));
    return OptimizerPlanner(module, optimizer, options, rules, mismatches)
        .Run(std::move(kinds), loaded);
  });
}

}  // namespace fsdp
