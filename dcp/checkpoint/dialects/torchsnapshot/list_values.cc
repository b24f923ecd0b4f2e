// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/torchsnapshot/list_values.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace dcp {
namespace {

// A list's elements: the number of each value; nullopt for a tensor or a
// container.
using Elements = std::map<int64_t, std::optional<size_t>>;

std::optional<int64_t> IndexAt(const StatePath& path, size_t at) {
  const int64_t* const index = std::get_if<int64_t>(&path[at]);
  return index == nullptr ? std::nullopt : std::optional<int64_t>(*index);
}

StatePath Front(const StatePath& path, size_t size) {
  return StatePath(path.begin(), path.begin() + static_cast<ptrdiff_t>(size));
}

bool IsPlain(const CheckpointEntry& entry) {
  const ObjectEntry* const object = entry.object();
  return object != nullptr && object->unreadable.ok() &&
         object->tensors.empty();
}

class ListJoiner {
 public:
  ListJoiner(uint32_t file, ValueArena& arena, std::vector<RankValue>& values)
      : file_(file), arena_(arena), values_(values) {}

  // Notes which lists lead to `place`, where value `value` is.
  void Note(const RankPath& place, std::optional<size_t> value) {
    const StatePath& path = place.second;
    for (size_t at = 0; at < path.size(); ++at) {
      const std::optional<int64_t> index = IndexAt(path, at);
      if (!index.has_value()) continue;
      std::optional<size_t>& element =
          lists_[{place.first, Front(path, at)}][*index];
      element = at + 1 == path.size() ? value : std::nullopt;
      has_elements_.insert(Front(path, at));
    }
  }

  // Adds the lists without elements.
  void AddEmpty(absl::Span<const RankPath> lists) {
    for (const auto& [rank, path] : lists) {
      for (size_t at = 0; at < path.size(); ++at) {
        if (IndexAt(path, at).has_value())
          has_elements_.insert(Front(path, at));
      }
    }
    for (const RankPath& list : lists) {
      if (list.second.empty() || has_elements_.contains(list.second)) continue;
      values_.push_back({list, MakeListEntry(arena_.List())});
      Note(list, values_.size() - 1);
    }
  }

  // Joins from the inside to the outside.
  void Join() {
    std::vector<RankPath> places;
    for (const auto& [place, elements] : lists_) places.push_back(place);
    std::sort(places.begin(), places.end(),
              [](const RankPath& a, const RankPath& b) {
                return a.second.size() > b.second.size();
              });
    std::vector<bool> is_joined(values_.size());
    for (const RankPath& place : places) JoinOne(place, is_joined);
    size_t kept = 0;
    for (size_t i = 0; i < values_.size(); ++i) {
      if (is_joined[i]) continue;
      if (kept != i) values_[kept] = std::move(values_[i]);
      ++kept;
    }
    values_.erase(values_.begin() + static_cast<ptrdiff_t>(kept),
                  values_.end());
  }

 private:
  CheckpointEntry MakeListEntry(Value value) const {
    ObjectEntry object;
    object.item.file = file_;
    object.located = true;
    object.value = value;
    CheckpointEntry entry;
    entry.value = std::move(object);
    return entry;
  }

  void JoinOne(const RankPath& place, std::vector<bool>& is_joined) {
    const Elements& elements = lists_.at(place);
    std::vector<Value> items;
    for (const auto& [index, value] : elements) {
      const bool is_next = index == static_cast<int64_t>(items.size());
      if (!is_next || !value.has_value() || !IsPlain(values_[*value].entry)) {
        return;
      }
      items.push_back(values_[*value].entry.object()->value);
    }
    // The first element becomes the list.
    const size_t first = *elements.begin()->second;
    for (const auto& [index, value] : elements) is_joined[*value] = true;
    is_joined[first] = false;
    values_[first] = {place, MakeListEntry(arena_.List(items))};
    const StatePath& path = place.second;
    const std::optional<int64_t> index = IndexAt(path, path.size() - 1);
    if (index.has_value()) {
      lists_.at({place.first, Front(path, path.size() - 1)})[*index] = first;
    }
  }

  const uint32_t file_;
  ValueArena& arena_;
  std::vector<RankValue>& values_;
  absl::flat_hash_map<RankPath, Elements> lists_;
  absl::flat_hash_set<StatePath> has_elements_;  // on any rank
};

}  // namespace

void JoinLists(absl::Span<const RankPath> others,
               absl::Span<const RankPath> lists, uint32_t file,
               ValueArena& arena, std::vector<RankValue>& values) {
  ListJoiner joiner(file, arena, values);
  for (const RankPath& place : others) joiner.Note(place, std::nullopt);
  for (size_t i = 0; i < values.size(); ++i) joiner.Note(values[i].place, i);
  joiner.AddEmpty(lists);
  joiner.Join();
}

}  // namespace dcp
