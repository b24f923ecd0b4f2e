// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/model_state.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/module_entries.h"
#include "fsdp/checkpoint/state/torch_status.h"

namespace fsdp {
namespace {

using torch::nn::Module;

// The entries that the options select, under the names that they get.
absl::StatusOr<std::vector<ModuleEntry>> ChosenEntries(
    const Module& module, const StateDictOptions& options) {
  std::vector<ModuleEntry> entries = ListEntries(module);
  if (options.submodules.empty()) return entries;
  if (!options.keep_submodule_prefixes && options.submodules.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("names of ", options.submodules.size(),
                     " submodules need their prefixes; set "
                     "keep_submodule_prefixes, or give one submodule"));
  }
  const std::optional<std::vector<std::string>> prefixes =
      FindModulePrefixes(module, options.submodules);
  if (!prefixes.has_value()) {
    return absl::InvalidArgumentError(
        "one of the submodules is not inside the module");
  }
  std::vector<ModuleEntry> chosen;
  for (ModuleEntry& entry : entries) {
    for (const std::string& prefix : *prefixes) {
      if (!absl::StartsWith(entry.name, prefix)) continue;
      if (!options.keep_submodule_prefixes) {
        entry.name.erase(0, prefix.size());
      }
      chosen.push_back(std::move(entry));
      break;
    }
  }
  return chosen;
}

StateValue EntryValue(const ModuleEntry& entry) {
  const at::Tensor tensor = entry.tensor.detach();
  std::optional<DTensorSpec> spec = FindSpec(entry.tensor);
  if (!spec.has_value()) return StateValue(tensor);
  return StateValue(DTensor(tensor, *std::move(spec)));
}

}  // namespace

absl::StatusOr<StateDict> ModelState(const Module& module,
                                     const StateDictOptions& options) {
  return CatchTorch([&]() -> absl::StatusOr<StateDict> {
    DCP_ASSIGN_OR_RETURN(const std::vector<ModuleEntry> entries,
                         ChosenEntries(module, options));
    StateDict state;
    for (const ModuleEntry& entry : entries) {
      const bool frozen = entry.is_parameter && !entry.tensor.requires_grad();
      if (frozen && options.ignore_frozen_params) continue;
      state[entry.name] = EntryValue(entry);
    }
    return state;
  });
}

absl::StatusOr<ModelPlan> PlanModel(const Module& module,
                                    const StateDict& state,
                                    const StateDictOptions& options,
                                    const CopyRules& rules,
                                    Mismatches& mismatches) {
  DCP_ASSIGN_OR_RETURN(const std::vector<ModuleEntry> entries,
                       ChosenEntries(module, options));
  ModelPlan plan;
  absl::flat_hash_set<absl::string_view> known;
  // A tied tensor needs only one name; if there are several, the first counts.
  absl::flat_hash_set<const void*> given;
  for (const ModuleEntry& entry : entries) {
    known.insert(entry.name);
    const StateValue* src = state.find(entry.name);
    const void* const identity = entry.tensor.unsafeGetTensorImpl();
    if (src == nullptr || !given.insert(identity).second) continue;
    DCP_ASSIGN_OR_RETURN(std::optional<DTensorSpec> spec,
                         CatchTorch([&] { return FindSpec(entry.tensor); }));
    plan.copies.push_back({.name = entry.name,
                           .dst = entry.tensor.detach(),
                           .spec = std::move(spec),
                           .src = *src});
    CheckCopy(plan.copies.back(), rules, mismatches);
  }
  for (const ModuleEntry& entry : entries) {
    if (given.contains(entry.tensor.unsafeGetTensorImpl())) continue;
    plan.keys.missing_keys.push_back(entry.name);
  }
  for (const auto& [name, value] : state) {
    if (!known.contains(name)) plan.keys.unexpected_keys.push_back(name);
  }
  if (options.strict) {
    mismatches.missing.insert(mismatches.missing.end(),
                              plan.keys.missing_keys.begin(),
                              plan.keys.missing_keys.end());
    mismatches.unexpected.insert(mismatches.unexpected.end(),
                                 plan.keys.unexpected_keys.begin(),
                                 plan.keys.unexpected_keys.end());
  }
  return plan;
}

}  // namespace fsdp
