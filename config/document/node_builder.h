// SPDX-License-Identifier: Apache-2.0
// NodeBuilder: builds a document's tree from a parser's events, within the
// document's bounds; refuses keys that occur twice. For one document, on one
// thread.
#ifndef CONFIG_DOCUMENT_NODE_BUILDER_H_
#define CONFIG_DOCUMENT_NODE_BUILDER_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "config/document/findings.h"
#include "config/document/node.h"
#include "config/document/setting.h"

namespace fsdp::config {

struct TextPosition {  // both count from 1; 0: not known
  int line = 0;
  int column = 0;
};

class NodeBuilder {
 public:
  // `findings` must outlive this.
  NodeBuilder(absl::string_view name, Findings& findings);

  // Each returns false after a problem that ends the document, which is then
  // among the findings: the parser must stop.
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
  // The tree so far, for changes before Build; paths are not set yet.
  Node& root() { return root_; }

  // The root, with all paths set; an empty map after Fail and for a document
  // without a value. A root that is not a map is a problem.
  Node Build() &&;

 private:
  struct Open {
    Node node;
    std::string key;  // of the next value, in a map
    bool has_key = false;
    bool skip = false;  // the next value has a key that occurred before
    std::set<std::string> keys;
  };

  SourceLocation MakePlace(TextPosition position) const;
  bool CountNodes(size_t count, TextPosition position);
  bool Attach(Node node);
  bool SetPaths(Node& node, const std::string& path);

  std::string name_;
  Findings* findings_;
  std::vector<Open> open_;
  Node root_;
  Node skipped_;
  const Node* last_ = nullptr;
  size_t num_nodes_ = 0;
  int num_duplicates_ = 0;
  bool has_root_ = false;
  bool failed_ = false;
};

}  // namespace fsdp::config

#endif  // CONFIG_DOCUMENT_NODE_BUILDER_H_
