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

// The value under the text `key` of a mapping (IsMapping): the last one, as in
// Python. nullopt if there is none or `value` is not a mapping.
std::optional<Value> FindKey(const Value& value, absl::string_view key);

// The values of a mapping by its keys that are texts: as FindKey finds them,
// for many keys. Empty for anything else. Valid as long as the arena of
// `value`.
absl::flat_hash_map<absl::string_view, Value> ValuesByKey(const Value& value);

// The same in the order of the mapping; a key that occurs twice has its last
// value where it came first, as in Python.
std::vector<std::pair<absl::string_view, Value>> ItemsByKey(const Value& value);

// The attribute `name` in the state that BUILD gave an object: a dict, or for a
// class with slots a pair of dicts. None if there is none.
Value AttributeInState(const Value& state, absl::string_view name);

// The same for an object; None for anything else.
Value AttributeOf(const Value& object, absl::string_view name);

}  // namespace dcp

#endif  // DCP_FORMAT_VALUE_VALUE_LOOKUP_H_
