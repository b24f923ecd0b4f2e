#include "fsdp/checkpoint/state/flat_state.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/format/state_path.h"

namespace fsdp {
namespace {

using StatefulPtr = std::shared_ptr<Stateful>;

bool IsTensor(const StateValue& value) {
  return value.get_if<at::Tensor>() != nullptr ||
         value.get_if<DTensor>() != nullptr;
}

bool IsLeaf(const StateValue& value) {
  if (value.get_if<StateDict>() != nullptr) return false;
  const auto* list = value.get_if<StateList>();
  if (list == nullptr) return true;
  for (const StateValue& item : *list) {
    if (IsTensor(item) || item.get_if<StateDict>() != nullptr) return false;
    if (item.get_if<StateList>() != nullptr && !IsLeaf(item)) return false;
  }
  return true;
}

absl::StatusOr<StateValue> Expand(const StateValue& value) {
  if (const auto* dict = value.get_if<StateDict>()) {
    DCP_ASSIGN_OR_RETURN(StateDict expanded, ExpandState(*dict));
    return StateValue(std::move(expanded));
  }
  if (const auto* list = value.get_if<StateList>()) {
    StateList expanded;
    absl::Status status;
    for (const StateValue& item : *list) {
      absl::StatusOr<StateValue> copy = Expand(item);
      status.Update(copy.status());
      expanded.push_back(copy.ok() ? *std::move(copy) : StateValue());
    }
    DCP_RETURN_IF_ERROR(status);
    return StateValue(std::move(expanded));
  }
  if (const auto* object = value.get_if<StatefulPtr>()) {
    if (*object == nullptr) {
      return absl::InvalidArgumentError("is a null pointer");
    }
    DCP_ASSIGN_OR_RETURN(const StateDict dict, (*object)->state_dict());
    return Expand(StateValue(dict));
  }
  return value;
}

absl::Status Restore(const StateValue& expanded, StateValue& value) {
  if (auto* object = value.get_if<StatefulPtr>()) {
    return (*object)->load_state_dict(*expanded.get_if<StateDict>());
  }
  if (auto* dict = value.get_if<StateDict>()) {
    return RestoreState(*expanded.get_if<StateDict>(), *dict);
  }
  auto* list = value.get_if<StateList>();
  if (list != nullptr && !IsLeaf(expanded)) {
    const auto& from = *expanded.get_if<StateList>();
    absl::Status status;
    for (size_t i = 0; i < list->size(); ++i) {
      status.Update(Restore(from[i], (*list)[i]));
    }
    return status;
  }
  // A tensor is still the same object; a plain value may be a new one.
  if (!IsTensor(value)) value = expanded;
  return absl::OkStatus();
}

class Flattener {
 public:
  absl::Status Add(StateValue& value) {
    if (auto* dict = value.get_if<StateDict>()) {
      for (auto& [key, item] : *dict) {
        DCP_RETURN_IF_ERROR(AddBelow(key, item));
      }
      return absl::OkStatus();
    }
    if (!IsLeaf(value)) {
      int64_t index = 0;
      for (StateValue& item : *value.get_if<StateList>()) {
        DCP_RETURN_IF_ERROR(AddBelow(index++, item));
      }
      return absl::OkStatus();
    }
    std::string name = dcp::PathToName(path_);
    if (!names_.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two entries have the name ", name));
    }
    leaves_.push_back({std::move(name), path_, &value});
    return absl::OkStatus();
  }

  absl::Status AddBelow(dcp::PathElement element, StateValue& value) {
    path_.push_back(std::move(element));
    const absl::Status added = Add(value);
    path_.pop_back();
    return added;
  }

  std::vector<StateLeaf> Leaves() && { return std::move(leaves_); }

 private:
  dcp::StatePath path_;
  absl::flat_hash_set<std::string> names_;
  std::vector<StateLeaf> leaves_;
};

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

absl::StatusOr<std::vector<dcp::Value>> ItemsOf(const StateList& list,
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

// The entries of a dict by key: ranks may have added them in any order.
template <typename Dict>
auto SortedEntries(Dict& dict) {
  std::vector<decltype(&*dict.begin())> entries;
  for (auto& entry : dict) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const auto* a, const auto* b) { return a->first < b->first; });
  return entries;
}

}  // namespace

absl::StatusOr<StateDict> ExpandState(const StateDict& state) {
  StateDict expanded;
  for (const auto& entry : state) expanded[entry.first];  // in its own order
  absl::Status status;
  for (const auto* entry : SortedEntries(state)) {
    absl::StatusOr<StateValue> copy = Expand(entry->second);
    if (copy.ok()) {
      expanded[entry->first] = *std::move(copy);
    } else {
      status.Update(dcp::Annotate(copy.status(), entry->first));
    }
  }
  DCP_RETURN_IF_ERROR(status);
  return expanded;
}

absl::Status RestoreState(const StateDict& expanded, StateDict& state) {
  absl::Status status;
  for (auto* entry : SortedEntries(state)) {
    status.Update(dcp::Annotate(
        Restore(*expanded.find(entry->first), entry->second), entry->first));
  }
  return status;
}

absl::StatusOr<std::vector<StateLeaf>> FlattenState(StateDict& state) {
  Flattener flattener;
  for (auto& [key, value] : state) {
    DCP_RETURN_IF_ERROR(flattener.AddBelow(key, value));
  }
  return std::move(flattener).Leaves();
}

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
                         ItemsOf(*list, arena));
    return arena.List(items);
  }
  if (const auto* tuple = leaf.get_if<StateTuple>()) {
    DCP_ASSIGN_OR_RETURN(const std::vector<dcp::Value> items,
                         ItemsOf(tuple->items, arena));
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
      "a tensor or an object in a tuple; put it in a list or dict");
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
