// SPDX-License-Identifier: Apache-2.0

#include "config/explain/group_plan.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace fsdp {
namespace {

int64_t NumElements(const ParameterShape& parameter) {
  int64_t numel = 1;
  for (const int64_t size : parameter.sizes) numel *= size;
  return numel;
}

bool IsNumber(absl::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isdigit(c);
  });
}

// The names of the modules that contain a parameter, outermost first:
// "a.0.weight": "a", "a.0".
std::vector<absl::string_view> ParentModules(absl::string_view name) {
  std::vector<absl::string_view> modules;
  for (size_t dot = name.find('.'); dot != absl::string_view::npos;
       dot = name.find('.', dot + 1)) {
    modules.push_back(name.substr(0, dot));
  }
  return modules;
}

absl::string_view LastPart(absl::string_view module) {
  const size_t dot = module.rfind('.');
  return dot == absl::string_view::npos ? module : module.substr(dot + 1);
}

// The layer that contains a parameter; empty: none.
absl::string_view ParentLayer(absl::string_view parameter) {
  for (const absl::string_view module : ParentModules(parameter)) {
    if (IsNumber(LastPart(module))) return module;
  }
  return "";
}

// The root's child that contains the parameter; if that child is a list, the
// list's child.
absl::string_view RootChild(absl::string_view parameter) {
  const std::vector<absl::string_view> modules = ParentModules(parameter);
  if (modules.empty()) return "";
  const bool is_list = modules.size() > 1 && IsNumber(LastPart(modules[1]));
  return modules[is_list ? 1 : 0];
}

// The rule of SizeBasedWrapPolicy, applied to names: from the inside out, a
// module is picked once it contains `least` elements that no pick inside it
// contains. Lists are not picked. result[i] is the pick for parameters[i].
std::vector<absl::string_view> PickBySize(
    int64_t least, const std::vector<ParameterShape>& parameters) {
  std::map<absl::string_view, std::vector<size_t>> held;
  for (size_t i = 0; i < parameters.size(); ++i) {
    for (const absl::string_view module : ParentModules(parameters[i].name)) {
      held[module].push_back(i);
    }
  }
  std::map<absl::string_view, bool> is_list;
  for (const auto& [module, indices] : held) {
    const size_t dot = module.rfind('.');
    if (dot == absl::string_view::npos) continue;
    if (IsNumber(LastPart(module))) is_list[module.substr(0, dot)] = true;
  }
  std::vector<absl::string_view> picks(parameters.size());
  // Longer names come first, so that a module comes before the one that
  // contains it.
  std::vector<absl::string_view> modules;
  for (const auto& [module, indices] : held) modules.push_back(module);
  std::stable_sort(modules.begin(), modules.end(),
                   [](absl::string_view a, absl::string_view b) {
                     return a.size() > b.size();
                   });
  for (const absl::string_view module : modules) {
    if (is_list[module]) continue;
    int64_t numel = 0;
    for (const size_t i : held[module]) {
      if (picks[i].empty()) numel += NumElements(parameters[i]);
    }
    if (numel < least) continue;
    for (const size_t i : held[module]) {
      if (picks[i].empty()) picks[i] = module;
    }
  }
  return picks;
}

}  // namespace

std::vector<GroupPlan> plan_groups(
    const ShardingConfig& sharding,
    const std::vector<ParameterShape>& parameters) {
  std::vector<absl::string_view> modules(parameters.size());
  if (*sharding.auto_wrap_policy == AutoWrapPolicy::kSizeBasedWrap) {
    modules = PickBySize(*sharding.min_num_params, parameters);
  }
  std::vector<GroupPlan> groups;
  std::map<absl::string_view, size_t> index;
  GroupPlan root;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (*sharding.auto_wrap_policy == AutoWrapPolicy::kTransformerBasedWrap) {
      modules[i] = ParentLayer(parameters[i].name);
    } else if (*sharding.auto_wrap_policy == AutoWrapPolicy::kDirectChildren) {
      modules[i] = RootChild(parameters[i].name);
    }
    if (modules[i].empty()) {
      root.parameters.push_back(parameters[i]);
      continue;
    }
    const auto [it, is_new] = index.emplace(modules[i], groups.size());
    if (is_new) groups.push_back({std::string(modules[i]), {}});
    groups[it->second].parameters.push_back(parameters[i]);
  }
  groups.push_back(std::move(root));
  return groups;
}

}  // namespace fsdp
