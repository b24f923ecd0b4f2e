// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/diff/container_diff.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/glob_set.h"
#include "dcp/base/status.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/format/torch/value_copy.h"

namespace dcp {
namespace {

constexpr size_t kMaxShownBytes = 60;

struct Container {
  Value value;
  bool empty = false;
};
using Containers = absl::btree_map<std::string, Container>;

bool IsSelected(absl::string_view name, const SelectionOptions& selection) {
  const auto matches = [name](const std::string& glob) {
    return MatchesGlob(glob, name);
  };
  const auto any = [&](const std::vector<std::string>& globs) {
    return std::any_of(globs.begin(), globs.end(), matches);
  };
  if (!selection.include.empty() && !any(selection.include)) return false;
  return !any(selection.exclude);
}

// The containers that hold selected values, by name; the outermost has none.
absl::StatusOr<Containers> FindContainers(const ContainerSide& side) {
  const Value& root = side.checkpoint.torch_archive()->root;
  DCP_ASSIGN_OR_RETURN(const std::vector<FlatValue> leaves, FlattenWhole(root));
  Containers containers;
  containers[""] = {.value = root};
  for (const FlatValue& leaf : leaves) {
    if (!IsSelected(leaf.fqn, side.selection)) continue;
    StatePath path;
    for (size_t i = 1; i < leaf.steps.size(); ++i) {
      path.push_back(leaf.path[i - 1]);
      containers[PathToName(path)] = {.value = leaf.steps[i].container};
    }
    if (IsMapping(leaf.value) && leaf.value.items().empty()) {
      containers[leaf.fqn] = {.value = leaf.value, .empty = true};
    }
  }
  return containers;
}

// "dict", "collections.defaultdict(builtins.list)".
std::string TypeText(const Value& container) {
  if (container.is(Value::Kind::kList)) return "list";
  if (container.is(Value::Kind::kDict)) return "dict";
  return absl::StrCat(container.callable().module(), ".",
                      container.callable().name(),
                      container.args().items().empty()
                          ? ""
                          : ToString(container.args(), kMaxShownBytes));
}

std::string KeyText(const Value& key) {
  return key.is(Value::Kind::kStr) ? std::string(key.text()) : ToString(key);
}

std::string ShowKey(const Value& key) {
  return absl::StrCat("key ", ToString(key, kMaxShownBytes));
}

// The first keys with the same text but different types.
std::optional<std::pair<Value, Value>> DifferentKeys(const Value& a,
                                                     const Value& b) {
  if (!IsMapping(a) || !IsMapping(b)) return std::nullopt;
  absl::flat_hash_map<std::string, Value> keys;
  for (size_t i = 0; i < a.items().size(); i += 2) {
    keys.emplace(KeyText(a.items()[i]), a.items()[i]);
  }
  for (size_t i = 0; i < b.items().size(); i += 2) {
    const Value& key = b.items()[i];
    const auto it = keys.find(KeyText(key));
    if (it != keys.end() && !DeepEqual(it->second, key, /*exact=*/true)) {
      return std::pair(it->second, key);
    }
  }
  return std::nullopt;
}

// The state that BUILD gave a container, without the storages' numbers.
Value BuildState(ValueArena& arena, const Value& container) {
  if (!container.is(Value::Kind::kCall)) return Value();
  return CopyValue(arena, container.state(),
                   [&](const Value& value) -> std::optional<Value> {
                     if (!value.is(Value::Kind::kPersistent)) {
                       return std::nullopt;
                     }
                     return arena.Str("a storage");
                   });
}

std::optional<DiffFinding> Compare(const Value& a, const Value& b) {
  DiffFinding finding{.kind = DiffFinding::Kind::kContainer,
                      .name = "",
                      .in_a = TypeText(a),
                      .in_b = TypeText(b),
                      .difference = {}};
  if (finding.in_a != finding.in_b) return finding;
  if (const auto keys = DifferentKeys(a, b); keys.has_value()) {
    finding.in_a = ShowKey(keys->first);
    finding.in_b = ShowKey(keys->second);
    return finding;
  }
  ValueArena arena;
  const Value state_a = BuildState(arena, a);
  const Value state_b = BuildState(arena, b);
  if (DeepEqual(state_a, state_b, /*exact=*/true)) return std::nullopt;
  finding.in_a = absl::StrCat("attributes ", ToString(state_a, kMaxShownBytes));
  finding.in_b = absl::StrCat("attributes ", ToString(state_b, kMaxShownBytes));
  return finding;
}

void AddMissing(const Containers& from, const Containers& other,
                DiffFinding::Kind kind, DiffReport& report) {
  for (const auto& [name, container] : from) {
    // A container that is not empty is reported by the missing contents.
    if (!container.empty || other.contains(name)) continue;
    const std::string text = ToString(container.value, kMaxShownBytes);
    const bool in_a = kind == DiffFinding::Kind::kOnlyInA;
    report.findings.push_back({.kind = kind,
                               .name = name,
                               .in_a = in_a ? text : "",
                               .in_b = in_a ? "" : text,
                               .difference = {}});
  }
}

}  // namespace

absl::Status CompareContainers(const ContainerSide& a, const ContainerSide& b,
                               DiffReport& report) {
  for (const ContainerSide* side : {&a, &b}) {
    if (side->checkpoint.torch_archive() == nullptr) {
      report.containers_skipped =
          absl::StrCat(FormatName(side->checkpoint.format()),
                       " does not keep types of containers and keys");
      return absl::OkStatus();
    }
    if (!side->selection.renames.empty()) {
      report.containers_skipped =
          "types of containers and keys are not compared under renames";
      return absl::OkStatus();
    }
  }
  DCP_ASSIGN_OR_RETURN(const Containers in_a, FindContainers(a));
  DCP_ASSIGN_OR_RETURN(const Containers in_b, FindContainers(b));
  for (const auto& [name, container] : in_a) {
    const auto other = in_b.find(name);
    if (other == in_b.end()) continue;
    std::optional<DiffFinding> finding =
        Compare(container.value, other->second.value);
    if (!finding.has_value()) continue;
    finding->name = name.empty() ? "(root)" : name;
    report.findings.push_back(*std::move(finding));
  }
  AddMissing(in_a, in_b, DiffFinding::Kind::kOnlyInA, report);
  AddMissing(in_b, in_a, DiffFinding::Kind::kOnlyInB, report);
  return absl::OkStatus();
}

}  // namespace dcp
