// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/state_leaves.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/format/torch/state_path.h"

namespace fsdp {
namespace {

using StatefulPtr = std::shared_ptr<Stateful>;

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

// A dict's entries by key: ranks may have added them in any order.
template <typename Dict>
auto SortedEntries(Dict& dict) {
  std::vector<decltype(&*dict.begin())> entries;
  for (auto& entry : dict) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const auto* a, const auto* b) { return a->first < b->first; });
  return entries;
}

}  // namespace

bool IsTensor(const StateValue& value) {
  return value.get_if<at::Tensor>() != nullptr ||
         value.get_if<DTensor>() != nullptr;
}

absl::StatusOr<StateDict> ExpandState(const StateDict& state) {
  StateDict expanded;
  // in the state's order
  for (const auto& entry : state) expanded[entry.first];
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

}  // namespace fsdp
