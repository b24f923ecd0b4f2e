// SPDX-License-Identifier: Apache-2.0
// NodeBuilder: builds a document's tree from a parser's events, within the
// document's bounds; refuses keys that occur twice. For one document, on one
// thread.
#ifndef DOCUMENT_NODE_BUILDER_H_
#define DOCUMENT_NODE_BUILDER_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "document/node.h"
#include "document/problem.h"

namespace dcp::document {

class NodeBuilder {
 public:
  // With limits, the document is strict: the first problem ends it. All
  // arguments must outlive this.
  NodeBuilder(absl::string_view name, std::vector<Problem>& problems,
              const StrictLimits* limits = nullptr);

  bool is_strict() const { return limits_ != nullptr; }

  // Each returns false after a problem that ends the document, which is then
  // among the problems: the parser must stop.
  bool Begin(Node::Kind kind, TextPosition position);
  bool End();
  bool Key(absl::string_view key, TextPosition position);
  bool Scalar(Node::Kind kind, absl::string_view text, TextPosition position);
  // Adds a copy of `node`, with the place where it was written.
  bool Copy(const Node& node, TextPosition position);
  // Counts nodes that are kept outside the tree.
  bool Count(const Node& node, TextPosition position);

  // Adds a problem that ends the document; returns false.
  bool Fail(TextPosition position, absl::string_view text);

  // Whether a map is open and has no key for the next value yet.
  bool expects_key() const;
  // The last value that was completed. Valid until the next call.
  const Node& last() const;
  // The tree so far; null without a value. Paths are not set.
  Node& root() { return root_; }

  // The root, with all paths set; an empty map after Fail and for a document
  // without a value. A root that is not a map is a problem.
  Node BuildMap() &&;

 private:
  struct Open {
    Node node;
    std::string key;  // of the next value, in a map
    TextPosition key_position;
    bool has_key = false;
    bool skip = false;  // the next value has a key that occurred before
    std::set<std::string> keys;
  };

  SourceLocation MakePlace(TextPosition position) const;
  bool CheckText(absl::string_view text, TextPosition position);
  bool CountNodes(size_t count, TextPosition position);
  bool Attach(Node node);
  bool SetPaths(Node& node, const std::string& path);

  std::string name_;
  std::vector<Problem>* problems_;
  const StrictLimits* limits_;
  std::vector<Open> open_;
  Node root_;
  Node skipped_;
  const Node* last_ = nullptr;
  size_t num_nodes_ = 0;
  int num_duplicates_ = 0;
  bool failed_ = false;
};

// The parsers; they are in yaml_document.cc, json_document.cc and
// toml_document.cc. Only YAML may be strict.
void ReadYaml(absl::string_view text, NodeBuilder& builder);
void ReadJson(absl::string_view text, NodeBuilder& builder);
void ReadToml(absl::string_view text, NodeBuilder& builder);

}  // namespace dcp::document

#endif  // DOCUMENT_NODE_BUILDER_H_
