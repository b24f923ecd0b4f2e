// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/state_tree.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

constexpr size_t kMaxPathElements = kMaxPickleDepth / 2;

bool IsIndex(const PathElement& element) {
  return std::holds_alternative<int64_t>(element);
}

// The tree that a set of paths describes. The paths must outlive it.
class PathTree {
 public:
  static constexpr uint32_t kRoot = 0;
  enum class NodeKind : uint8_t { kUnknown, kLeaf, kDict, kList };

  struct Node {
    NodeKind kind = NodeKind::kUnknown;
    const PathElement* element = nullptr;  // in the parent
    Value key;                             // the original key of `element`,
    bool has_key = false;                  // if that is known
    // the original container of the children
    Value container;
    bool mixed = false;              // they stood in several
    int64_t max_index = -1;          // for a list
    size_t leaf = 0;                 // which path ends here
    std::vector<uint32_t> children;  // in order of first appearance
  };

  PathTree() : nodes_(1) { nodes_[kRoot].kind = NodeKind::kDict; }

  absl::Status Add(const StatePath& path, size_t leaf,
                   absl::Span<const StateStep> steps = {});
  // Checks that the lists in the paths are not much longer than the number of
  // paths.
  absl::Status CheckLists(size_t num_paths) const;
  const Node& node(uint32_t index) const { return nodes_[index]; }

 private:
  struct Edge {
    uint32_t parent;
    const PathElement* element;

    friend bool operator==(const Edge& a, const Edge& b) {
      return a.parent == b.parent && *a.element == *b.element;
    }
    template <typename H>
    friend H AbslHashValue(H h, const Edge& edge) {
      h = H::combine(std::move(h), edge.parent);
      if (IsIndex(*edge.element)) {
        return H::combine(std::move(h), std::get<int64_t>(*edge.element));
      }
      return H::combine(std::move(h), std::get<std::string>(*edge.element));
    }
  };

  void Remember(absl::Span<const uint32_t> way,
                absl::Span<const StateStep> steps);

  std::vector<Node> nodes_;
  absl::flat_hash_map<Edge, uint32_t> edges_;
};

absl::Status Conflict(const StatePath& path, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("path ", PathToName(path), " ", what));
}

// Whether `element` in a path is the key that `step` follows.
bool Matches(const PathElement& element, const StateStep& step) {
  if (step.container.is(Kind::kList)) return IsIndex(element);
  if (IsIndex(element)) return false;
  const std::string& text = std::get<std::string>(element);
  return step.key.is(Kind::kStr) ? step.key.text() == text
                                 : ToString(step.key, kMaxNameBytes) == text;
}

// Records in the nodes on the way to a leaf which containers they were in. A
// renamed path shares the last elements with the old one, preceded by one new
// element.
void PathTree::Remember(absl::Span<const uint32_t> way,
                        absl::Span<const StateStep> steps) {
  for (size_t i = 0; i < steps.size() && i + 1 < way.size(); ++i) {
    const StateStep& step = steps[steps.size() - 1 - i];
    Node& node = nodes_[way[way.size() - 1 - i]];
    Node& parent = nodes_[way[way.size() - 2 - i]];
    if (parent.container.is_none()) parent.container = step.container;
    parent.mixed |= parent.container.identity() != step.container.identity();
    if (!Matches(*node.element, step)) return;
    node.key = step.key;
    node.has_key = true;
  }
}

absl::Status PathTree::Add(const StatePath& path, size_t leaf,
                           absl::Span<const StateStep> steps) {
  if (path.empty()) return absl::InvalidArgumentError("a path is empty");
  if (path.size() > kMaxPathElements) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a path of ", path.size(), " elements exceeds ", kMaxPathElements));
  }
  uint32_t at = kRoot;
  absl::InlinedVector<uint32_t, 8> way = {at};
  for (const PathElement& element : path) {
    const NodeKind wanted =
        IsIndex(element) ? NodeKind::kList : NodeKind::kDict;
    Node& parent = nodes_[at];
    if (parent.kind == NodeKind::kUnknown) parent.kind = wanted;
    if (parent.kind == NodeKind::kLeaf) {
      return Conflict(path, "runs through another value");
    }
    if (parent.kind != wanted) {
      return Conflict(path, "has a key where another has an index");
    }
    if (IsIndex(element)) {
      const int64_t index = std::get<int64_t>(element);
      if (index < 0) return Conflict(path, "has a negative index");
      parent.max_index = std::max(parent.max_index, index);
    }
    const uint32_t next = static_cast<uint32_t>(nodes_.size());
    const auto [it, added] =
        edges_.try_emplace(Edge{.parent = at, .element = &element}, next);
    if (added) {
      DCP_CHECK(nodes_.size() < kMaxMetadataBytes, "too many nodes");
      parent.children.push_back(next);
      nodes_.emplace_back().element = &element;
    }
    at = it->second;
    way.push_back(at);
  }
  if (nodes_[at].kind == NodeKind::kLeaf) {
    return Conflict(path, "occurs twice");
  }
  if (nodes_[at].kind != NodeKind::kUnknown) {
    return Conflict(path, "is the beginning of another path");
  }
  nodes_[at].kind = NodeKind::kLeaf;
  nodes_[at].leaf = leaf;
  Remember(way, steps);
  return absl::OkStatus();
}

absl::Status PathTree::CheckLists(size_t num_paths) const {
  const uint64_t most = std::max<uint64_t>(kMaxListIndex, 16 * num_paths);
  uint64_t num_slots = 0;
  for (const Node& node : nodes_) {
    if (node.kind != NodeKind::kList) continue;
    if (static_cast<uint64_t>(node.max_index) > most) {
      return absl::InvalidArgumentError(
          absl::StrCat("the list index ", node.max_index, " exceeds ", most));
    }
    num_slots += static_cast<uint64_t>(node.max_index) + 1;
  }
  // One more, so that a single list may use the largest index.
  if (num_slots > most + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lists of ", num_slots, " elements together exceed ", most));
  }
  return absl::OkStatus();
}

class TreeBuilder {
 public:
  TreeBuilder(ValueArena& arena, const PathTree& tree,
              absl::Span<const FlatValue> leaves,
              absl::FunctionRef<Value(const Value&)> copy)
      : arena_(arena), tree_(tree), leaves_(leaves), copy_(copy) {}

  // A node's value. Recurses as deep as the longest path.
  Value Build(uint32_t index);

 private:
  Value BuildList(const PathTree::Node& node);
  Value BuildMapping(const PathTree::Node& node);
  Value FindBuilt(const void* container, absl::Span<const Value> items) const;

  ValueArena& arena_;
  const PathTree& tree_;
  const absl::Span<const FlatValue> leaves_;
  const absl::FunctionRef<Value(const Value&)> copy_;
  // The result for each container: several values if the paths to it were
  // treated differently.
  absl::flat_hash_map<const void*, std::vector<Value>> built_;
};

// The value that was already built from `container` with these items; None if
// there is none.
Value TreeBuilder::FindBuilt(const void* container,
                             absl::Span<const Value> items) const {
  const auto it = built_.find(container);
  if (it == built_.end()) return Value();
  const auto same = [](const Value& a, const Value& b) {
    if (a.identity() != nullptr || b.identity() != nullptr) {
      return a.identity() == b.identity();
    }
    return DeepEqual(a, b, /*exact=*/true);
  };
  for (const Value& value : it->second) {
    if (std::equal(items.begin(), items.end(), value.items().begin(),
                   value.items().end(), same)) {
      return value;
    }
  }
  return Value();
}

Value TreeBuilder::Build(uint32_t index) {
  const PathTree::Node& node = tree_.node(index);
  switch (node.kind) {
    case PathTree::NodeKind::kLeaf:
      return leaves_[node.leaf].value;
    case PathTree::NodeKind::kList:
      return BuildList(node);
    default:
      return BuildMapping(node);
  }
}

Value TreeBuilder::BuildList(const PathTree::Node& node) {
  std::vector<Value> items(static_cast<size_t>(node.max_index) + 1);
  for (const uint32_t child : node.children) {
    const int64_t slot = std::get<int64_t>(*tree_.node(child).element);
    items[static_cast<size_t>(slot)] = Build(child);
  }
  const void* container = node.mixed ? nullptr : node.container.identity();
  const Value before = FindBuilt(container, items);
  if (!before.is_none()) return before;
  const Value list = arena_.List(items);
  if (container != nullptr) built_[container].push_back(list);
  return list;
}

Value TreeBuilder::BuildMapping(const PathTree::Node& node) {
  std::vector<Value> items;
  items.reserve(2 * node.children.size());
  for (const uint32_t child : node.children) {
    const PathTree::Node& entry = tree_.node(child);
    const std::string& text = std::get<std::string>(*entry.element);
    items.push_back(entry.has_key ? copy_(entry.key) : arena_.Str(text));
    items.push_back(Build(child));
  }
  const bool like = !node.mixed && IsMapping(node.container);
  const void* container = like ? node.container.identity() : nullptr;
  const Value before = FindBuilt(container, items);
  if (!before.is_none()) return before;
  Value mapping;
  if (like && node.container.is(Kind::kCall)) {
    const Value& from = node.container;
    const Value callable = copy_(from.callable());
    const Value args = copy_(from.args());
    mapping = from.is_new() ? arena_.New(callable, args)
                            : arena_.Call(callable, args);
    arena_.Update(mapping, items);
    if (!from.state().is_none()) arena_.SetState(mapping, copy_(from.state()));
  } else {
    mapping = arena_.Dict(items);
  }
  if (container != nullptr) built_[container].push_back(mapping);
  return mapping;
}

}  // namespace

absl::Status CheckPaths(absl::Span<const StatePath> paths) {
  PathTree tree;
  for (const StatePath& path : paths) {
    DCP_RETURN_IF_ERROR(tree.Add(path, 0));
  }
  return tree.CheckLists(paths.size());
}

absl::StatusOr<Value> UnflattenLike(
    ValueArena& arena, absl::Span<const FlatValue> leaves,
    absl::FunctionRef<Value(const Value&)> copy) {
  PathTree tree;
  std::vector<StatePath> own_paths;
  own_paths.reserve(leaves.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    const FlatValue& leaf = leaves[i];
    if (leaf.path.empty()) own_paths.push_back({PathElement(leaf.fqn)});
    DCP_RETURN_IF_ERROR(tree.Add(
        leaf.path.empty() ? own_paths.back() : leaf.path, i, leaf.steps));
  }
  DCP_RETURN_IF_ERROR(tree.CheckLists(leaves.size()));
  return TreeBuilder(arena, tree, leaves, copy).Build(PathTree::kRoot);
}

absl::StatusOr<Value> Unflatten(ValueArena& arena,
                                absl::Span<const FlatValue> leaves) {
  return UnflattenLike(arena, leaves, [](const Value& key) { return key; });
}

}  // namespace dcp
