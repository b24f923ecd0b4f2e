// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/loaded_optimizer.h"

#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/tensor_copies.h"

namespace fsdp {
namespace {

constexpr char kState[] = "state";
constexpr char kGroups[] = "param_groups";
constexpr char kParams[] = "params";

absl::Status WrongShape(absl::string_view where, const StateValue* value,
                        absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(
      "optimizer state dict: ", where, " is ",
      value == nullptr ? "missing" : KindName(*value), "; expected ", wanted));
}

// Turns parameter numbers into names.
class Numbering {
 public:
  explicit Numbering(const std::vector<std::vector<std::string>>& names) {
    for (const auto& group : names) {
      flat_.insert(flat_.end(), group.begin(), group.end());
    }
  }

  absl::StatusOr<std::string> FindName(int64_t number) const {
    if (number < 0 || number >= static_cast<int64_t>(flat_.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer state dict: it names parameter ", number,
                       ", but the optimizer has ", flat_.size()));
    }
    return flat_[static_cast<size_t>(number)];
  }

 private:
  std::vector<std::string> flat_;
};

absl::StatusOr<LoadedOptimizer::Group> ParseGroup(const StateValue& value,
                                                  const Numbering& numbering,
                                                  bool& numbered) {
  const auto* dict = value.get_if<StateDict>();
  if (dict == nullptr) return WrongShape("a param group", &value, "a dict");
  LoadedOptimizer::Group group;
  for (const auto& [key, item] : *dict) {
    if (key != kParams) group.hyperparameters[key] = item;
  }
  // An empty list is missing when only hyperparameters were loaded.
  const StateValue* params = dict->find(kParams);
  if (params == nullptr) return group;
  const auto* list = params->get_if<StateList>();
  if (list == nullptr) {
    return WrongShape("params of a param group", params, "a list");
  }
  for (const StateValue& item : *list) {
    if (const auto* name = item.get_if<std::string>()) {
      group.names.push_back(*name);
    } else if (const auto* number = item.get_if<int64_t>()) {
      numbered = true;
      DCP_ASSIGN_OR_RETURN(group.names.emplace_back(),
                           numbering.FindName(*number));
    } else {
      return WrongShape("a parameter of a param group", &item, "a name");
    }
  }
  return group;
}

absl::StatusOr<LoadedOptimizer> ParseNested(
    const StateDict& nested,
    const std::vector<std::vector<std::string>>& names) {
  const Numbering numbering(names);
  LoadedOptimizer loaded;
  bool numbered = false;
  // There are no groups if their entries were not asked for.
  if (const StateValue* value = nested.find(kGroups)) {
    const auto* groups = value->get_if<StateList>();
    if (groups == nullptr) return WrongShape(kGroups, value, "a list");
    for (const StateValue& group : *groups) {
      DCP_ASSIGN_OR_RETURN(loaded.groups.emplace_back(),
                           ParseGroup(group, numbering, numbered));
    }
  }
  const StateValue* value = nested.find(kState);
  // A checkpoint does not store an empty dict.
  if (value == nullptr) return loaded;
  const auto* state = value->get_if<StateDict>();
  if (state == nullptr) return WrongShape(kState, value, "a dict");
  for (const auto& [key, entry] : *state) {
    const auto* dict = entry.get_if<StateDict>();
    if (dict == nullptr) {
      return WrongShape(absl::StrCat("state.", key), &entry, "a dict");
    }
    std::string name = key;
    int64_t number = 0;
    if (numbered && absl::SimpleAtoi(key, &number)) {
      DCP_ASSIGN_OR_RETURN(name, numbering.FindName(number));
    }
    loaded.state[name] = *dict;
  }
  return loaded;
}

absl::StatusOr<LoadedOptimizer> ParseFlattened(const StateDict& flat) {
  LoadedOptimizer loaded;
  absl::flat_hash_map<std::string, size_t> group_of;
  for (const auto& [key, value] : flat) {
    absl::string_view rest = key;
    const bool is_state = absl::ConsumePrefix(&rest, "state.");
    const bool is_group =
        !is_state && absl::ConsumePrefix(&rest, "param_groups.");
    // Names have dots; the keys of optimizers do not.
    const size_t dot = rest.rfind('.');
    if ((!is_state && !is_group) || dot == absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer state dict: the key ", key, " is not one of ",
                       kState, ", ", kGroups, ", ", kState,
                       ".<name>.<key> and ", kGroups, ".<name>.<key>"));
    }
    const std::string name(rest.substr(0, dot));
    const std::string last(rest.substr(dot + 1));
    if (is_state) {
      loaded.state[name][last] = value;
      continue;
    }
    const auto [it, added] = group_of.emplace(name, loaded.groups.size());
    if (added) loaded.groups.push_back({{name}, {}});
    loaded.groups[it->second].hyperparameters[last] = value;
  }
  return loaded;
}

}  // namespace

absl::StatusOr<LoadedOptimizer> ParseOptimizerState(
    const StateDict& state,
    const std::vector<std::vector<std::string>>& names) {
  if (state.find(kState) != nullptr || state.find(kGroups) != nullptr) {
    return ParseNested(state, names);
  }
  return ParseFlattened(state);
}

StateDict FlattenOptimizerState(const StateDict& nested) {
  StateDict flat;
  for (const auto& [name, entry] : *nested.find(kState)->get_if<StateDict>()) {
    for (const auto& [key, value] : *entry.get_if<StateDict>()) {
      flat[absl::StrCat(kState, ".", name, ".", key)] = value;
    }
  }
  for (const StateValue& group : *nested.find(kGroups)->get_if<StateList>()) {
    const auto& dict = *group.get_if<StateDict>();
    for (const StateValue& name : *dict.find(kParams)->get_if<StateList>()) {
      for (const auto& [key, value] : dict) {
        if (key == kParams) continue;
        flat[absl::StrCat(kGroups, ".", *name.get_if<std::string>(), ".",
                          key)] = value;
      }
    }
  }
  return flat;
}

}  // namespace fsdp
