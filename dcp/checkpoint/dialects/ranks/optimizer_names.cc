// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/optimizer_names.h"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dcp/base/option_name.h"
#include "dcp/format/torch/rank_tensor.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/value/value_lookup.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// The whole shape for a tensor, sharded or not; nullopt for anything else.
std::optional<Dims> WholeShape(const Value& value) {
  if (IsRankTensor(value)) {
    absl::StatusOr<RankTensor> tensor = ParseRankTensor(value);
    if (!tensor.ok()) return std::nullopt;
    return std::move(tensor->shape);
  }
  if (!IsTensor(value)) return std::nullopt;
  absl::StatusOr<TorchTensor> tensor = ParseTensor(value);
  if (!tensor.ok()) return std::nullopt;
  return std::move(tensor->sizes);
}

// Equal for tensors that are one tensor in memory; empty if this rank has none
// of the elements.
std::string MemoryIdentity(const Value& value) {
  Value local = value;
  if (IsRankTensor(value)) {
    const absl::StatusOr<RankTensor> tensor = ParseRankTensor(value);
    if (!tensor.ok() || tensor->pieces.empty()) return "";
    local = tensor->pieces[0].tensor;
  }
  const absl::StatusOr<TorchTensor> tensor = ParseTensor(local);
  if (!tensor.ok() || Volume(tensor->sizes) == 0) return "";
  return absl::StrCat(tensor->storage_key, " ", tensor->storage_offset, " ",
                      ShapeToString(tensor->sizes));
}

// Each number's state.
absl::flat_hash_map<int64_t, Value> StatesByNumber(const Value& optimizer) {
  absl::flat_hash_map<int64_t, Value> states;
  const std::optional<Value> state = FindKey(optimizer, "state");
  if (!state.has_value() || !IsMapping(*state)) return states;
  const absl::Span<const Value> items = state->items();
  for (size_t i = 0; i < items.size(); i += 2) {
    if (items[i].is(Kind::kInt)) states[items[i].int_value()] = items[i + 1];
  }
  return states;
}

// The shape that all tensors in a state have, apart from numbers; nullopt if it
// has no other tensors, or several shapes.
std::optional<Dims> StateShape(const Value& state) {
  std::optional<Dims> shape;
  if (!IsMapping(state)) return std::nullopt;
  for (size_t i = 1; i < state.items().size(); i += 2) {
    std::optional<Dims> found = WholeShape(state.items()[i]);
    if (!found.has_value() || found->empty()) continue;
    if (shape.has_value() && *shape != *found) return std::nullopt;
    shape = std::move(found);
  }
  return shape;
}

bool HasTensors(const Value& state) {
  if (!IsMapping(state)) return false;
  for (size_t i = 0; i < state.items().size(); i += 2) {
    if (state.items()[i].is(Kind::kStr) && state.items()[i].text() == "step") {
      continue;
    }
    if (WholeShape(state.items()[i + 1]).has_value()) return true;
  }
  return false;
}

// One element in param_groups.
struct Group {
  std::vector<int64_t> numbers;
  std::vector<std::string> names;  // the recorded names, perhaps fewer
};

// Nullopt if the parameters are not counted.
std::optional<std::vector<Group>> OptimizerGroups(const Value& optimizer) {
  const std::optional<Value> list = FindKey(optimizer, "param_groups");
  if (!list.has_value() || !list->is(Kind::kList)) return std::nullopt;
  std::vector<Group> groups;
  for (const Value& item : list->items()) {
    Group& group = groups.emplace_back();
    const std::optional<Value> params = FindKey(item, "params");
    if (!params.has_value() || !params->is(Kind::kList)) return std::nullopt;
    for (const Value& number : params->items()) {
      if (!number.is(Kind::kInt)) return std::nullopt;
      group.numbers.push_back(number.int_value());
    }
    const Value names = FindKey(item, "param_names").value_or(Value());
    if (!names.is(Kind::kList)) continue;
    for (const Value& name : names.items()) {
      if (name.is(Kind::kStr)) group.names.emplace_back(name.text());
    }
  }
  return groups;
}

class NameFinder {
 public:
  NameFinder(const Parameters& parameters, const Value& optimizer,
             std::vector<Group> groups)
      : parameters_(parameters),
        states_(StatesByNumber(optimizer)),
        groups_(std::move(groups)) {
    for (const Group& group : groups_) {
      numbers_.insert(numbers_.end(), group.numbers.begin(),
                      group.numbers.end());
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      by_name_.emplace(parameters[i].first, i);
      by_shape_[ShapeToString(parameters[i].second)].push_back(i);
    }
  }

  // The names that the groups record; empty if they do not fit.
  OptimizerNames RecordedNames() const {
    OptimizerNames names;
    for (const Group& group : groups_) {
      if (group.names.size() != group.numbers.size()) return {};
      for (size_t i = 0; i < group.numbers.size(); ++i) {
        const auto found = by_name_.find(group.names[i]);
        if (found == by_name_.end() ||
            !Fits(group.numbers[i], parameters_[found->second].second)) {
          return {};
        }
        names[group.numbers[i]] = group.names[i];
      }
    }
    return names;
  }

  bool MayBeOrdered() const {
    return groups_.size() == 1 && numbers_.size() == parameters_.size();
  }

  // The names by order; empty if it does not fit.
  OptimizerNames NamesInOrder() const {
    if (!MayBeOrdered()) return {};
    OptimizerNames names;
    for (size_t i = 0; i < numbers_.size(); ++i) {
      if (!Fits(numbers_[i], parameters_[i].second)) return {};
      names[numbers_[i]] = parameters_[i].first;
    }
    return names;
  }

  // The names that follow from the shapes; empty if they are not certain.
  OptimizerNames NamesByShape() const {
    OptimizerNames names;
    std::vector<bool> taken(parameters_.size());
    std::vector<int64_t> without_state;
    for (const int64_t number : numbers_) {
      const auto state = states_.find(number);
      if (state == states_.end() || !HasTensors(state->second)) {
        without_state.push_back(number);
        continue;
      }
      const Dims shape = StateShape(state->second).value_or(Dims());
      const auto found = by_shape_.find(ShapeToString(shape));
      if (found == by_shape_.end() || found->second.size() != 1 ||
          !Fits(number, shape)) {
        return {};
      }
      const size_t i = found->second[0];
      if (taken[i]) return {};
      taken[i] = true;
      names[number] = parameters_[i].first;
    }
    // The other parameters have no state, so their numbers make no difference.
    if (without_state.empty()) return names;
    if (!MayBeOrdered()) return {};
    size_t next = 0;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!taken[i]) names[without_state[next++]] = parameters_[i].first;
    }
    return names;
  }

 private:
  // Whether the state for `number`, if it has one, fits a parameter with this
  // shape.
  bool Fits(int64_t number, const Dims& shape) const {
    const auto state = states_.find(number);
    if (state == states_.end()) return true;
    if (!IsMapping(state->second)) return false;
    for (size_t i = 1; i < state->second.items().size(); i += 2) {
      const std::optional<Dims> found = WholeShape(state->second.items()[i]);
      if (found.has_value() && !found->empty() && *found != shape) return false;
    }
    return true;
  }

  const Parameters& parameters_;
  const absl::flat_hash_map<int64_t, Value> states_;
  const std::vector<Group> groups_;
  std::vector<int64_t> numbers_;  // in all groups
  absl::flat_hash_map<std::string, size_t> by_name_;
  absl::flat_hash_map<std::string, std::vector<size_t>> by_shape_;
};

}  // namespace

FoundNames FindOptimizerNames(const Parameters& parameters,
                              const Value& optimizer, bool in_order) {
  std::optional<std::vector<Group>> groups = OptimizerGroups(optimizer);
  if (!groups.has_value()) return {};
  const NameFinder finder(parameters, optimizer, *std::move(groups));
  OptimizerNames names = finder.RecordedNames();
  if (!names.empty()) return {.names = std::move(names)};
  OptimizerNames ordered = finder.NamesInOrder();
  if (in_order && !ordered.empty()) return {.names = std::move(ordered)};
  names = finder.NamesByShape();
  const bool needs_order = !in_order && names.empty() && finder.MayBeOrdered();
  return {.names = std::move(names), .needs_order = needs_order};
}

SourceLoss NumberedOptimizer(bool has_order) {
  return {.part = StatePart::kOptimizer,
          .text = absl::StrCat(
              "the optimizer numbers the parameters, and some of the same "
              "shape cannot be told apart: the state keeps the numbers",
              has_order ? "; if the optimizer got the parameters in the order "
                          "of the model, "
                        : "; ",
              ToText({"optimizer_in_model_order"}), " gives names",
              has_order ? ""
                        : absl::StrCat(" with a file of the order by ",
                                       ToText({"like"})))};
}

Parameters SavedParameters(const Value& model) {
  if (!IsMapping(model)) return {};
  const absl::Span<const Value> items = model.items();
  bool any_sharded = false;
  for (size_t i = 0; i < items.size(); i += 2) {
    any_sharded = any_sharded || IsRankTensor(items[i + 1]);
  }
  Parameters parameters;
  absl::flat_hash_set<std::string> seen;
  for (size_t i = 0; i < items.size(); i += 2) {
    if (!items[i].is(Kind::kStr) || IsRankTensor(items[i + 1]) != any_sharded) {
      continue;
    }
    std::optional<Dims> shape = WholeShape(items[i + 1]);
    if (!shape.has_value()) continue;
    const std::string memory = MemoryIdentity(items[i + 1]);
    if (!memory.empty() && !seen.insert(memory).second) continue;
    parameters.emplace_back(items[i].text(), *std::move(shape));
  }
  return parameters;
}

std::optional<std::vector<int64_t>> OnlyGroupNumbers(const Value& optimizer) {
  const std::optional<Value> groups = FindKey(optimizer, "param_groups");
  if (!groups.has_value() || !groups->is(Kind::kList) ||
      groups->items().size() != 1) {
    return std::nullopt;
  }
  const std::optional<Value> params = FindKey(groups->items()[0], "params");
  if (!params.has_value() || !params->is(Kind::kList)) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Value& number : params->items()) {
    if (!number.is(Kind::kInt)) return std::nullopt;
    numbers.push_back(number.int_value());
  }
  return numbers;
}

Value GroupsWithNames(
    ValueArena& arena, const Value& groups,
    const absl::flat_hash_map<int64_t, std::vector<std::string>>& names) {
  if (!groups.is(Kind::kList)) return groups;
  std::vector<Value> result;
  for (const Value& group : groups.items()) {
    if (!IsMapping(group)) {
      result.push_back(group);
      continue;
    }
    std::vector<Value> items(group.items().begin(), group.items().end());
    for (size_t i = 0; i < items.size(); i += 2) {
      if (!items[i].is(Kind::kStr) || items[i].text() != "params" ||
          !items[i + 1].is(Kind::kList)) {
        continue;
      }
      std::vector<Value> params;
      for (const Value& number : items[i + 1].items()) {
        const auto it = number.is(Kind::kInt) ? names.find(number.int_value())
                                              : names.end();
        if (it == names.end()) {
          params.push_back(number);
          continue;
        }
        for (const std::string& name : it->second) {
          params.push_back(arena.Str(name));
        }
      }
      items[i + 1] = arena.List(params);
    }
    result.push_back(arena.Dict(items));
  }
  return arena.List(result);
}

Value WithNames(ValueArena& arena, const Value& optimizer,
                const OptimizerNames& names) {
  absl::flat_hash_map<int64_t, std::vector<std::string>> lists;
  for (const auto& [number, name] : names) lists[number] = {name};
  std::vector<Value> result(optimizer.items().begin(), optimizer.items().end());
  for (size_t i = 0; i < result.size(); i += 2) {
    if (!result[i].is(Kind::kStr)) continue;
    Value& value = result[i + 1];
    if (result[i].text() == "param_groups") {
      value = GroupsWithNames(arena, value, lists);
    }
    if (result[i].text() != "state" || !IsMapping(value)) continue;
    std::vector<Value> states(value.items().begin(), value.items().end());
    for (size_t j = 0; j < states.size(); j += 2) {
      const auto it = states[j].is(Kind::kInt)
                          ? names.find(states[j].int_value())
                          : names.end();
      if (it != names.end()) states[j] = arena.Str(it->second);
    }
    value = arena.Dict(states);
  }
  return arena.Dict(result);
}

}  // namespace dcp
