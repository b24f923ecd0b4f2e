// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/value/value_lookup.h"

#include <cstddef>

#include "absl/types/span.h"

namespace dcp {

using Kind = Value::Kind;

std::optional<Value> FindKey(const Value& value, absl::string_view key) {
  if (!IsMapping(value)) return std::nullopt;
  const absl::Span<const Value> items = value.items();
  for (size_t i = items.size(); i >= 2; i -= 2) {
    const Value& found = items[i - 2];
    if (found.is(Kind::kStr) && found.text() == key) return items[i - 1];
  }
  return std::nullopt;
}

absl::flat_hash_map<absl::string_view, Value> ValuesByKey(const Value& value) {
  absl::flat_hash_map<absl::string_view, Value> values;
  if (!IsMapping(value)) return values;
  for (size_t i = 0; i < value.items().size(); i += 2) {
    const Value& key = value.items()[i];
    if (key.is(Kind::kStr)) values[key.text()] = value.items()[i + 1];
  }
  return values;
}

std::vector<std::pair<absl::string_view, Value>> ItemsByKey(
    const Value& value) {
  std::vector<std::pair<absl::string_view, Value>> items;
  absl::flat_hash_map<absl::string_view, Value> left = ValuesByKey(value);
  for (size_t i = 0; !left.empty(); i += 2) {
    const Value& key = value.items()[i];
    const auto found = key.is(Kind::kStr) ? left.find(key.text()) : left.end();
    if (found == left.end()) continue;
    items.emplace_back(*found);
    left.erase(found);
  }
  return items;
}

Value AttributeInState(const Value& state, absl::string_view name) {
  if (!state.is(Kind::kTuple)) return FindKey(state, name).value_or(Value());
  for (const Value& part : state.items()) {
    if (!part.is(Kind::kDict)) continue;
    const Value value = AttributeInState(part, name);
    if (!value.is_none()) return value;
  }
  return Value();
}

Value ObjectAttribute(const Value& object, absl::string_view name) {
  return object.is(Kind::kCall) ? AttributeInState(object.state(), name)
                                : Value();
}

}  // namespace dcp
