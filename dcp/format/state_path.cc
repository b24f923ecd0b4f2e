#include "dcp/format/state_path.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/torch_tensor.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

constexpr size_t kMaxPathElements = kMaxPickleDepth / 2;

bool IsIndex(const PathElement& element) {
  return std::holds_alternative<int64_t>(element);
}

std::string ElementText(const PathElement& element) {
  if (IsIndex(element)) return absl::StrCat(std::get<int64_t>(element));
  return std::get<std::string>(element);
}

// Whether Python's repr() of a text is the text between quotes.
bool IsPlainText(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isprint(static_cast<unsigned char>(c)) && c != '\\' &&
           c != '\'';
  });
}

// What Python's str() makes of a key; nullopt for kinds whose text we do not
// know to the letter.
std::optional<std::string> KeyText(const Value& key) {
  switch (key.kind()) {
    case Kind::kStr:
      return std::string(key.text());
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat:
      return ToString(key, kMaxNameBytes);
    case Kind::kTuple:
      for (const Value& item : key.items()) {
        if (item.is(Kind::kStr) && !IsPlainText(item.text())) {
          return std::nullopt;
        }
        if (!KeyText(item).has_value()) return std::nullopt;
      }
      return ToString(key, kMaxNameBytes);
    default:
      return std::nullopt;
  }
}

class Flattener {
 public:
  absl::StatusOr<std::vector<FlatValue>> Run(const Value& root) {
    DCP_RETURN_IF_ERROR(Visit(root));
    absl::flat_hash_set<absl::string_view> names;
    names.reserve(flat_.size());
    for (const FlatValue& leaf : flat_) {
      if (names.insert(leaf.fqn).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("two values have the name ", leaf.fqn));
    }
    return std::move(flat_);
  }

 private:
  absl::Status Visit(const Value& value);
  absl::Status VisitChild(PathElement element, const Value& child);
  absl::Status AddLeaf(const Value& value);
  bool IsLeaf(const Value& value);
  bool IsLeafList(const Value& list);

  StatePath path_;
  std::string name_;
  uint64_t num_name_bytes_ = 0;
  std::vector<FlatValue> flat_;
  // Lists within lists would be looked through again at each level.
  absl::flat_hash_map<const void*, bool> leaf_lists_;
};

bool Flattener::IsLeaf(const Value& value) {
  if (IsMapping(value)) return false;
  return !value.is(Kind::kList) || IsLeafList(value);
}

bool Flattener::IsLeafList(const Value& list) {
  if (const auto it = leaf_lists_.find(list.identity());
      it != leaf_lists_.end()) {
    return it->second;
  }
  const absl::Span<const Value> items = list.items();
  const bool leaf = std::all_of(
      items.begin(), items.end(),
      [&](const Value& item) { return !IsTensor(item) && IsLeaf(item); });
  leaf_lists_.emplace(list.identity(), leaf);
  return leaf;
}

absl::Status Flattener::AddLeaf(const Value& value) {
  num_name_bytes_ += name_.size();
  if (num_name_bytes_ > kMaxMetadataBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "names together are longer than ", kMaxMetadataBytes, " bytes"));
  }
  flat_.push_back({.fqn = name_, .path = path_, .value = value});
  return absl::OkStatus();
}

absl::Status Flattener::VisitChild(PathElement element, const Value& child) {
  const size_t length = name_.size();
  absl::StrAppend(&name_, path_.empty() ? "" : ".", ElementText(element));
  if (name_.size() > kMaxNameBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a name is longer than ", kMaxNameBytes, " bytes"));
  }
  path_.push_back(std::move(element));
  DCP_RETURN_IF_ERROR(Visit(child));
  path_.pop_back();
  name_.resize(length);
  return absl::OkStatus();
}

absl::Status Flattener::Visit(const Value& value) {
  if (IsLeaf(value)) return AddLeaf(value);
  const absl::Span<const Value> items = value.items();
  if (value.is(Kind::kList)) {
    for (size_t i = 0; i < items.size(); ++i) {
      DCP_RETURN_IF_ERROR(VisitChild(static_cast<int64_t>(i), items[i]));
    }
    return absl::OkStatus();
  }
  for (size_t i = 0; i < items.size(); i += 2) {
    std::optional<std::string> key = KeyText(items[i]);
    if (!key.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the key ", ToString(items[i], 60), " in ",
                       name_.empty() ? "the state dict" : name_,
                       " cannot be part of a name"));
    }
    DCP_RETURN_IF_ERROR(VisitChild(*std::move(key), items[i + 1]));
  }
  return absl::OkStatus();
}

// The tree that a set of paths spells. The paths must outlive it.
class PathTree {
 public:
  static constexpr uint32_t kRoot = 0;
  enum class NodeKind : uint8_t { kUnknown, kLeaf, kDict, kList };

  struct Node {
    NodeKind kind = NodeKind::kUnknown;
    const PathElement* element = nullptr;  // in the parent
    int64_t max_index = -1;                // of a list
    size_t leaf = 0;                       // which path ends here
    std::vector<uint32_t> children;        // in order of first appearance
  };

  PathTree() : nodes_(1) { nodes_[kRoot].kind = NodeKind::kDict; }

  absl::Status Add(const StatePath& path, size_t leaf);
  // That the lists which the paths spell are not much longer than the number
  // of paths.
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

  std::vector<Node> nodes_;
  absl::flat_hash_map<Edge, uint32_t> edges_;
};

absl::Status Conflict(const StatePath& path, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("path ", PathToName(path), " ", what));
}

absl::Status PathTree::Add(const StatePath& path, size_t leaf) {
  if (path.empty()) return absl::InvalidArgumentError("a path is empty");
  if (path.size() > kMaxPathElements) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a path of ", path.size(), " steps exceeds ", kMaxPathElements));
  }
  uint32_t at = kRoot;
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
  }
  if (nodes_[at].kind == NodeKind::kLeaf) {
    return Conflict(path, "stands there twice");
  }
  if (nodes_[at].kind != NodeKind::kUnknown) {
    return Conflict(path, "is part of another");
  }
  nodes_[at].kind = NodeKind::kLeaf;
  nodes_[at].leaf = leaf;
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
  // One more, so that a single list may reach the largest index.
  if (num_slots > most + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("lists of ", num_slots, " slots together exceed ", most));
  }
  return absl::OkStatus();
}

// The value of a node of the tree. As deep as the longest path.
Value Build(ValueArena& arena, const PathTree& tree, uint32_t index,
            absl::Span<const FlatValue> leaves) {
  const PathTree::Node& node = tree.node(index);
  if (node.kind == PathTree::NodeKind::kLeaf) return leaves[node.leaf].value;
  std::vector<Value> items;
  if (node.kind == PathTree::NodeKind::kList) {
    items.resize(static_cast<size_t>(node.max_index) + 1);
    for (const uint32_t child : node.children) {
      const int64_t slot = std::get<int64_t>(*tree.node(child).element);
      items[static_cast<size_t>(slot)] = Build(arena, tree, child, leaves);
    }
    return arena.List(items);
  }
  items.reserve(2 * node.children.size());
  for (const uint32_t child : node.children) {
    items.push_back(
        arena.Str(std::get<std::string>(*tree.node(child).element)));
    items.push_back(Build(arena, tree, child, leaves));
  }
  return arena.Dict(items);
}

}  // namespace

absl::StatusOr<std::vector<FlatValue>> Flatten(const Value& root) {
  if (!IsMapping(root)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a state dict is a mapping, this is ",
                     KindName(root.kind()), ": ", ToString(root, 60)));
  }
  return Flattener().Run(root);
}

std::string PathToName(const StatePath& path) {
  std::string name;
  for (size_t i = 0; i < path.size(); ++i) {
    absl::StrAppend(&name, i == 0 ? "" : ".", ElementText(path[i]));
  }
  return name;
}

absl::Status CheckPaths(absl::Span<const StatePath> paths) {
  PathTree tree;
  for (const StatePath& path : paths) {
    DCP_RETURN_IF_ERROR(tree.Add(path, 0));
  }
  return tree.CheckLists(paths.size());
}

absl::StatusOr<Value> Unflatten(ValueArena& arena,
                                absl::Span<const FlatValue> leaves) {
  PathTree tree;
  std::vector<StatePath> own_paths;
  own_paths.reserve(leaves.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    const FlatValue& leaf = leaves[i];
    if (leaf.path.empty()) own_paths.push_back({PathElement(leaf.fqn)});
    DCP_RETURN_IF_ERROR(
        tree.Add(leaf.path.empty() ? own_paths.back() : leaf.path, i));
  }
  DCP_RETURN_IF_ERROR(tree.CheckLists(leaves.size()));
  return Build(arena, tree, PathTree::kRoot, leaves);
}

StatePath RenamePath(const StatePath& path, absl::string_view new_name) {
  absl::string_view rest = new_name;  // what is not an element yet
  size_t first = path.size();         // of the elements that stay
  bool all = false;
  while (first > 0 && !all) {
    const std::string text = ElementText(path[first - 1]);
    all = rest == text;
    if (!all && !absl::ConsumeSuffix(&rest, absl::StrCat(".", text))) break;
    --first;
  }
  StatePath renamed;
  if (!all) renamed.emplace_back(std::string(rest));
  for (size_t i = first; i < path.size(); ++i) renamed.push_back(path[i]);
  renamed[0] = ElementText(renamed[0]);
  return renamed;
}

}  // namespace dcp
