// SPDX-License-Identifier: Apache-2.0
// Looks into dicts and pickled objects by name. Pure; any thread.
#ifndef DCP_FORMAT_VALUE_VALUE_LOOKUP_H_
#define DCP_FORMAT_VALUE_VALUE_LOOKUP_H_

#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "dcp/format/value/value.h"

namespace dcp {

// The value under the text `key` in a mapping (IsMapping): the last one, as in
// Python. nullopt if there is none or `value` is not a mapping.
std::optional<Value> FindKey(const Value& value, absl::string_view key);

// A mapping's values by text key, with FindKey's results for many keys. Empty
// for other values. Valid as long as the arena of `value`.
absl::flat_hash_map<absl::string_view, Value> ValuesByKey(const Value& value);

// The same in the mapping's order; a key that occurs twice has the last value
// at the first position, as in Python.
std::vector<std::pair<absl::string_view, Value>> ItemsByKey(const Value& value);

// The attribute `name` in the state that BUILD gave an object: a dict, or for a
// class with slots a pair of dicts. None if there is none.
Value AttributeInState(const Value& state, absl::string_view name);

// The same for an object; None for other values.
Value ObjectAttribute(const Value& object, absl::string_view name);

}  // namespace dcp

#endif  // DCP_FORMAT_VALUE_VALUE_LOOKUP_H_
