#include "dcp/checkpoint/open/dialects/ranks/optimizer_names.h"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dcp/format/rank_tensor.h"
#include "dcp/format/torch_tensor.h"
#include "dcp/format/value_lookup.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// The whole shape of a tensor, sharded or not; nullopt for anything else.
std::optional<Dims> ShapeOf(const Value& value) {
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

// Equal for tensors that are one tensor in memory; empty if this rank has no
// elements of it.
std::string MemoryOf(const Value& value) {
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

// The state of each number.
absl::flat_hash_map<int64_t, Value> StatesOf(const Value& optimizer) {
  absl::flat_hash_map<int64_t, Value> states;
  const std::optional<Value> state = FindKey(optimizer, "state");
  if (!state.has_value() || !IsMapping(*state)) return states;
  const absl::Span<const Value> items = state->items();
  for (size_t i = 0; i < items.size(); i += 2) {
    if (items[i].is(Kind::kInt)) states[items[i].int_value()] = items[i + 1];
  }
  return states;
}

// Whether every tensor of a state, apart from numbers, has the shape.
bool HasShape(const Value& state, const Dims& shape) {
  if (!IsMapping(state)) return false;
  for (size_t i = 1; i < state.items().size(); i += 2) {
    const std::optional<Dims> found = ShapeOf(state.items()[i]);
    if (found.has_value() && !found->empty() && *found != shape) return false;
  }
  return true;
}

}  // namespace

OptimizerNames FindOptimizerNames(const Value& model, const Value& optimizer) {
  if (!IsMapping(model)) return {};
  const std::optional<std::vector<int64_t>> numbers = NumbersOf(optimizer);
  if (!numbers.has_value()) return {};
  const std::vector<std::pair<std::string, Dims>> parameters =
      ParametersOf(model);
  if (parameters.size() != numbers->size()) return {};
  const absl::flat_hash_map<int64_t, Value> states = StatesOf(optimizer);
  OptimizerNames names;
  for (size_t i = 0; i < numbers->size(); ++i) {
    const int64_t number = (*numbers)[i];
    const auto state = states.find(number);
    if (state != states.end() &&
        !HasShape(state->second, parameters[i].second)) {
      return {};
    }
    names[number] = parameters[i].first;
  }
  return names;
}

std::vector<std::pair<std::string, Dims>> ParametersOf(const Value& model) {
  const absl::Span<const Value> items = model.items();
  bool any_sharded = false;
  for (size_t i = 0; i < items.size(); i += 2) {
    any_sharded = any_sharded || IsRankTensor(items[i + 1]);
  }
  std::vector<std::pair<std::string, Dims>> parameters;
  absl::flat_hash_set<std::string> seen;
  for (size_t i = 0; i < items.size(); i += 2) {
    if (!items[i].is(Kind::kStr) || IsRankTensor(items[i + 1]) != any_sharded) {
      continue;
    }
    std::optional<Dims> shape = ShapeOf(items[i + 1]);
    if (!shape.has_value()) continue;
    const std::string memory = MemoryOf(items[i + 1]);
    if (!memory.empty() && !seen.insert(memory).second) continue;
    parameters.emplace_back(items[i].text(), *std::move(shape));
  }
  return parameters;
}

std::optional<std::vector<int64_t>> NumbersOf(const Value& optimizer) {
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
