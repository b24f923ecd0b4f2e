// SPDX-License-Identifier: Apache-2.0
// Changes a part of a pickle, so that a test can damage a real program's
// pickle. One thread; a pickle that cannot be read is a DCP_CHECK.
#ifndef TESTS_DCP_FORMAT_PICKLE_EDIT_H_
#define TESTS_DCP_FORMAT_PICKLE_EDIT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/format/torch/value_copy.h"
#include "dcp/format/value/value.h"

namespace dcp::testing {

// `pickle` with other values under `key` in all dicts, including objects'
// attributes: `edit` returns the new value for the present one, made in the
// given arena. At least one dict must have the key.
inline std::string EditPickle(
    absl::string_view pickle, absl::string_view key,
    absl::FunctionRef<Value(ValueArena&, const Value&)> edit) {
  ValueArena read;
  const auto any = [](absl::string_view, absl::string_view) { return true; };
  const auto result =
      ReadPickle(AsBytes(pickle),
                 {.allow_global = any, .allow_persistent_ids = true}, read);
  DCP_CHECK(result.ok(), result.status().message());
  ValueArena arena;
  bool found = false;
  const auto substitute = [&](const Value& value) -> std::optional<Value> {
    if (!value.is(Value::Kind::kDict)) return std::nullopt;
    bool has_key = false;
    std::vector<Value> items(value.items().begin(), value.items().end());
    for (size_t i = 0; i < items.size(); i += 2) {
      const bool is_key =
          items[i].is(Value::Kind::kStr) && items[i].text() == key;
      if (is_key) items[i + 1] = edit(arena, items[i + 1]);
      has_key = has_key || is_key;
    }
    found = found || has_key;
    if (!has_key) return std::nullopt;
    return arena.Dict(items);
  };
  const Value edited = CopyValue(arena, result->root, substitute);
  DCP_CHECK(found, "no dict has the key ", key);
  return WritePickle(edited);
}

}  // namespace dcp::testing

#endif  // TESTS_DCP_FORMAT_PICKLE_EDIT_H_
