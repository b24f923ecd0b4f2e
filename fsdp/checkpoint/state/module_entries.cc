// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/module_entries.h"

#include <unordered_set>

#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/fsdp_param_group.h"
#include "fsdp/engine/module_access.h"

namespace fsdp {
namespace {

using torch::nn::Module;

void AddEntries(const Module& module, const std::string& prefix,
                std::vector<ModuleEntry>& entries) {
  for (const auto& item : ParameterRegistry(module)) {
    if (!item.value().defined()) continue;
    entries.push_back({prefix + item.key(), item.value(), true});
  }
  for (const auto& item : BufferRegistry(module)) {
    if (!item.value().defined()) continue;
    entries.push_back({prefix + item.key(), item.value(), false});
  }
  for (const auto& item : ChildRegistry(module)) {
    AddEntries(*item.value(), prefix + item.key() + ".", entries);
  }
}

// The first place of each module counts. Also looks inside modules that it has
// found.
void FindPrefixes(const Module& module, const std::string& prefix,
                  std::unordered_set<const Module*>& wanted,
                  std::vector<std::string>& prefixes) {
  if (wanted.erase(&module) != 0) prefixes.push_back(prefix);
  for (const auto& item : ChildRegistry(module)) {
    FindPrefixes(*item.value(), prefix + item.key() + ".", wanted, prefixes);
  }
}

}  // namespace

std::vector<ModuleEntry> ListEntries(const Module& module) {
  std::vector<ModuleEntry> entries;
  AddEntries(module, "", entries);
  return entries;
}

std::optional<std::vector<std::string>> FindModulePrefixes(
    const Module& root, const std::vector<const Module*>& modules) {
  std::unordered_set<const Module*> wanted(modules.begin(), modules.end());
  std::vector<std::string> prefixes;
  FindPrefixes(root, "", wanted, prefixes);
  if (!wanted.empty()) return std::nullopt;
  return prefixes;
}

bool IsSharded(const Module& module) {
  for (const ModuleEntry& entry : ListEntries(module)) {
    if (FsdpParam::FindByShard(entry.tensor) != nullptr) return true;
  }
  return false;
}

std::optional<DTensorSpec> FindSpec(const at::Tensor& parameter) {
  const FsdpParam* param = FsdpParam::FindByShard(parameter);
  if (param == nullptr) return std::nullopt;
  return param->AsDTensor().spec();
}

void DropGathered(Module& module) {
  for (const ModuleEntry& entry : ListEntries(module)) {
    FsdpParam* param = FsdpParam::FindByShard(entry.tensor);
    if (param == nullptr) continue;
    param->group().DropGather();
    param->group().Reshard(/*after_forward=*/false);
  }
}

}  // namespace fsdp
