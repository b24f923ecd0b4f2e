// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/plain_value.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dcp/base/status.h"

namespace fsdp {
namespace {

absl::StatusOr<std::string> KeyText(const dcp::Value& key) {
  switch (key.kind()) {
    case dcp::Value::Kind::kStr:
      return std::string(key.text());
    case dcp::Value::Kind::kInt:
      return absl::StrCat(key.int_value());
    default:
      return absl::UnimplementedError(
          absl::StrCat("a dict with ", dcp::KindName(key.kind()), " as key"));
  }
}

absl::StatusOr<std::vector<dcp::Value>> ConvertItems(const StateList& list,
                                                     dcp::ValueArena& arena) {
  std::vector<dcp::Value> items;
  for (const StateValue& item : list) {
    DCP_ASSIGN_OR_RETURN(items.emplace_back(), ToValue(item, arena));
  }
  return items;
}

absl::StatusOr<StateList> ListFromItems(absl::Span<const dcp::Value> items) {
  StateList list;
  for (const dcp::Value& item : items) {
    DCP_ASSIGN_OR_RETURN(list.emplace_back(), FromValue(item));
  }
  return list;
}

absl::StatusOr<StateValue> DictFromItems(absl::Span<const dcp::Value> items) {
  StateDict dict;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    DCP_ASSIGN_OR_RETURN(const std::string key, KeyText(items[i]));
    DCP_ASSIGN_OR_RETURN(dict[key], FromValue(items[i + 1]));
  }
  return StateValue(std::move(dict));
}

}  // namespace

absl::StatusOr<dcp::Value> ToValue(const StateValue& leaf,
                                   dcp::ValueArena& arena) {
  if (leaf.is_none()) return dcp::Value();
  if (const auto* yes = leaf.get_if<bool>()) return dcp::Value::Bool(*yes);
  if (const auto* number = leaf.get_if<int64_t>())
    return dcp::Value::Int(*number);
  if (const auto* number = leaf.get_if<double>())
    return dcp::Value::Float(*number);
  if (const auto* text = leaf.get_if<std::string>()) return arena.Str(*text);
  if (const auto* data = leaf.get_if<StateBytes>()) {
    return arena.Bytes(data->bytes);
  }
  if (const auto* list = leaf.get_if<StateList>()) {
    DCP_ASSIGN_OR_RETURN(const std::vector<dcp::Value> items,
                         ConvertItems(*list, arena));
    return arena.List(items);
  }
  if (const auto* tuple = leaf.get_if<StateTuple>()) {
    DCP_ASSIGN_OR_RETURN(const std::vector<dcp::Value> items,
                         ConvertItems(tuple->items, arena));
    return arena.Tuple(items);
  }
  if (const auto* dict = leaf.get_if<StateDict>()) {
    std::vector<dcp::Value> items;
    for (const auto& [key, value] : *dict) {
      items.push_back(arena.Str(key));
      DCP_ASSIGN_OR_RETURN(items.emplace_back(), ToValue(value, arena));
    }
    return arena.Dict(items);
  }
  return absl::UnimplementedError(
      "a tuple contains a tensor or an object; put it in a list or dict");
}

absl::StatusOr<StateValue> FromValue(const dcp::Value& value) {
  switch (value.kind()) {
    case dcp::Value::Kind::kNone:
      return StateValue();
    case dcp::Value::Kind::kBool:
      return StateValue(value.bool_value());
    case dcp::Value::Kind::kInt:
      return StateValue(value.int_value());
    case dcp::Value::Kind::kFloat:
      return StateValue(value.float_value());
    case dcp::Value::Kind::kStr:
      return StateValue(std::string(value.text()));
    case dcp::Value::Kind::kBytes:
      return StateValue(StateBytes{std::string(value.text())});
    case dcp::Value::Kind::kTuple: {
      DCP_ASSIGN_OR_RETURN(StateList items, ListFromItems(value.items()));
      return StateValue(StateTuple{std::move(items)});
    }
    case dcp::Value::Kind::kList: {
      DCP_ASSIGN_OR_RETURN(StateList items, ListFromItems(value.items()));
      return StateValue(std::move(items));
    }
    case dcp::Value::Kind::kDict:
      return DictFromItems(value.items());
    default:
      if (dcp::IsMapping(value)) return DictFromItems(value.items());
      return absl::UnimplementedError(
          absl::StrCat("a Python object, ", dcp::ToString(value, 80)));
  }
}

}  // namespace fsdp
