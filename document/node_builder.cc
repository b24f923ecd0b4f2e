// SPDX-License-Identifier: Apache-2.0
// Builds the tree and keeps the document's bounds.
//
// Tested by tests/document/document_test.cc.
#include "document/node_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"

namespace dcp::document {
namespace {

// Every node holds a path, so the memory is bounded by this times the number of
// nodes.
constexpr size_t kMaxPathBytes = 512;
// Each is a problem; a file with more has the same mistake many times.
constexpr int kMaxDuplicates = 20;

size_t NumNodes(const Node& node) {
  size_t count = 1;
  for (const Node& item : node.items) count += NumNodes(item);
  for (const auto& [key, value] : node.entries) count += NumNodes(value);
  return count;
}

size_t NodeDepth(const Node& node) {
  size_t depth = 0;
  for (const Node& item : node.items) {
    depth = std::max(depth, NodeDepth(item));
  }
  for (const auto& [key, value] : node.entries) {
    depth = std::max(depth, NodeDepth(value));
  }
  return node.is_scalar() ? 0 : depth + 1;
}

// A key as a message may show it.
std::string PathTo(absl::string_view parent, absl::string_view key) {
  return absl::StrCat(parent, parent.empty() ? "" : ".",
                      absl::Utf8SafeCHexEscape(key));
}

}  // namespace

NodeBuilder::NodeBuilder(absl::string_view name, std::vector<Problem>& problems,
                         const StrictLimits* limits)
    : name_(name), problems_(&problems), limits_(limits) {}

SourceLocation NodeBuilder::MakePlace(TextPosition position) const {
  SourceLocation place;
  place.file = name_;
  place.line = position.line;
  place.column = position.column;
  return place;
}

bool NodeBuilder::Fail(TextPosition position, absl::string_view text) {
  if (!failed_) problems_->push_back({MakePlace(position), std::string(text)});
  failed_ = true;
  return false;
}

bool NodeBuilder::CheckText(absl::string_view text, TextPosition position) {
  if (!is_strict() || text.size() <= limits_->text_bytes) return true;
  return Fail(position,
              absl::StrCat("has a text of ", text.size(), " bytes, more than ",
                           limits_->text_bytes));
}

bool NodeBuilder::CountNodes(size_t count, TextPosition position) {
  if (failed_) return false;
  if (count > kMaxDocumentNodes - num_nodes_) {
    return Fail(position,
                absl::StrCat("has more than ", kMaxDocumentNodes, " values",
                             is_strict() ? "" : " after aliases are expanded"));
  }
  num_nodes_ += count;
  return true;
}

bool NodeBuilder::Count(const Node& node, TextPosition position) {
  return CountNodes(NumNodes(node), position);
}

bool NodeBuilder::Begin(Node::Kind kind, TextPosition position) {
  if (!CountNodes(1, position)) return false;
  const size_t depth = is_strict() ? limits_->depth : kMaxDocumentDepth;
  if (open_.size() >= depth) {
    return Fail(position, absl::StrCat("is nested deeper than ", depth));
  }
  Open open;
  open.node.kind = kind;
  open.node.place = MakePlace(position);
  open_.push_back(std::move(open));
  return true;
}

bool NodeBuilder::End() {
  if (failed_) return false;
  DCP_CHECK(!open_.empty());
  Node node = std::move(open_.back().node);
  open_.pop_back();
  return Attach(std::move(node));
}

bool NodeBuilder::Key(absl::string_view key, TextPosition position) {
  if (failed_ || !CheckText(key, position)) return false;
  DCP_CHECK(expects_key());
  Open& open = open_.back();
  if (is_strict() && open.keys.size() == limits_->keys) {
    return Fail(position,
                absl::StrCat("has more than ", limits_->keys, " keys"));
  }
  open.key = std::string(key);
  open.key_position = position;
  open.has_key = true;
  open.skip = !open.keys.insert(open.key).second;
  if (!open.skip) return true;
  if (is_strict()) {
    return Fail(position,
                absl::StrCat("has the key ", absl::CHexEscape(key), " twice"));
  }
  if (++num_duplicates_ > kMaxDuplicates) {
    return Fail(position, "repeats many more keys");
  }
  SourceLocation place = MakePlace(position);
  for (const Open& outer : open_) {
    if (outer.has_key) place.key = PathTo(place.key, outer.key);
  }
  if (place.key.size() > kMaxPathBytes) place.key.resize(kMaxPathBytes);
  problems_->push_back({std::move(place), "is given twice"});
  return true;
}

bool NodeBuilder::Scalar(Node::Kind kind, absl::string_view text,
                         TextPosition position) {
  if (!CheckText(text, position) || !CountNodes(1, position)) return false;
  Node node;
  node.kind = kind;
  node.text = std::string(text);
  node.place = MakePlace(position);
  return Attach(std::move(node));
}

bool NodeBuilder::Copy(const Node& node, TextPosition position) {
  if (!Count(node, position)) return false;
  if (open_.size() + NodeDepth(node) > kMaxDocumentDepth) {
    return Fail(position,
                absl::StrCat("is nested deeper than ", kMaxDocumentDepth));
  }
  return Attach(node);
}

bool NodeBuilder::Attach(Node node) {
  if (open_.empty()) {
    root_ = std::move(node);
    last_ = &root_;
    return true;
  }
  Open& open = open_.back();
  if (open.node.kind == Node::Kind::kList) {
    open.node.items.push_back(std::move(node));
    last_ = &open.node.items.back();
    return true;
  }
  DCP_CHECK(open.has_key);
  node.key_position = open.key_position;
  open.has_key = false;
  if (open.skip) {
    skipped_ = std::move(node);
    last_ = &skipped_;
    return true;
  }
  open.node.entries.push_back({std::move(open.key), std::move(node)});
  last_ = &open.node.entries.back().value;
  return true;
}

bool NodeBuilder::expects_key() const {
  return !open_.empty() && open_.back().node.kind == Node::Kind::kMap &&
         !open_.back().has_key;
}

const Node& NodeBuilder::last() const {
  DCP_CHECK(last_ != nullptr);
  return *last_;
}

bool NodeBuilder::SetPaths(Node& node, const std::string& path) {
  node.place.key = path;
  if (path.size() > kMaxPathBytes) {
    node.place.key.resize(kMaxPathBytes);
    problems_->push_back({node.place, absl::StrCat("has a name of more than ",
                                                   kMaxPathBytes, " bytes")});
    return false;
  }
  for (size_t i = 0; i < node.items.size(); ++i) {
    if (!SetPaths(node.items[i], absl::StrCat(path, "[", i, "]"))) return false;
  }
  for (auto& [key, value] : node.entries) {
    if (!SetPaths(value, PathTo(path, key))) return false;
  }
  return true;
}

Node NodeBuilder::BuildMap() && {
  Node empty;
  empty.kind = Node::Kind::kMap;
  empty.place = MakePlace({});
  if (failed_ || root_.kind == Node::Kind::kNull) return empty;
  if (root_.kind != Node::Kind::kMap) {
    problems_->push_back({root_.place, "is not a map of keys and values"});
    return empty;
  }
  if (!SetPaths(root_, "")) return empty;
  return std::move(root_);
}

}  // namespace dcp::document
