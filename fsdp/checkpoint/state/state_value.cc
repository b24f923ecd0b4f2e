// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/state_value.h"

namespace fsdp {

StateDict::StateDict(
    std::initializer_list<std::pair<std::string, StateValue>> entries) {
  for (const auto& [key, value] : entries) (*this)[key] = value;
}

const StateValue* StateDict::find(absl::string_view key) const {
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

StateValue* StateDict::find(absl::string_view key) {
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

StateValue& StateDict::operator[](const std::string& key) {
  const auto [it, added] = index_.try_emplace(key, entries_.size());
  if (added) entries_.emplace_back(key, StateValue());
  return entries_[it->second].second;
}

bool StateDict::erase(absl::string_view key) {
  const auto it = index_.find(key);
  if (it == index_.end()) return false;
  const size_t erased = it->second;
  index_.erase(it);
  entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(erased));
  for (auto& [name, index] : index_) index -= index > erased ? 1 : 0;
  return true;
}

}  // namespace fsdp
