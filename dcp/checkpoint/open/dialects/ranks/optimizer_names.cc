// Tested by tests/dcp/checkpoint/open/dialects/dialects_test.cc.
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

// The names and shapes of the model's parameters, tied ones once.
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

// The numbers of the only group; nullopt if there are several groups or if the
// group has names.
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

Value WithNames(ValueArena& arena, const Value& optimizer,
                const OptimizerNames& names) {
  const auto renamed = [&](const Value& number) {
    const auto it =
        number.is(Kind::kInt) ? names.find(number.int_value()) : names.end();
    return it == names.end() ? number : arena.Str(it->second);
  };
  std::vector<Value> result;
  for (size_t i = 0; i < optimizer.items().size(); i += 2) {
    const Value& key = optimizer.items()[i];
    Value value = optimizer.items()[i + 1];
    const bool is_text = key.is(Kind::kStr);
    if (is_text && key.text() == "state" && IsMapping(value)) {
      std::vector<Value> states(value.items().begin(), value.items().end());
      for (size_t j = 0; j < states.size(); j += 2) {
        states[j] = renamed(states[j]);
      }
      value = arena.Dict(states);
    } else if (is_text && key.text() == "param_groups" &&
               value.is(Kind::kList)) {
      std::vector<Value> groups;
      for (const Value& group : value.items()) {
        if (!IsMapping(group)) {
          groups.push_back(group);
          continue;
        }
        std::vector<Value> items(group.items().begin(), group.items().end());
        for (size_t j = 0; j < items.size(); j += 2) {
          if (!items[j].is(Kind::kStr) || items[j].text() != "params" ||
              !items[j + 1].is(Kind::kList)) {
            continue;
          }
          std::vector<Value> params;
          for (const Value& number : items[j + 1].items()) {
            params.push_back(renamed(number));
          }
          items[j + 1] = arena.List(params);
        }
        groups.push_back(arena.Dict(items));
      }
      value = arena.List(groups);
    }
    result.push_back(key);
    result.push_back(value);
  }
  return arena.Dict(result);
}

}  // namespace dcp
