// SPDX-License-Identifier: Apache-2.0
// Node: a document's scalar, list or map, with a place in the text. Plain data.
#ifndef DOCUMENT_NODE_H_
#define DOCUMENT_NODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "document/problem.h"

namespace dcp::document {

// A document has some kilobytes; these bound the cost of a mistake or an
// attack.
inline constexpr size_t kMaxDocumentNodes = size_t{1} << 16;
inline constexpr size_t kMaxDocumentDepth = 64;

// For ParseStrictYaml.
struct StrictLimits {
  size_t depth;
  size_t keys;        // in one map
  size_t text_bytes;  // in one scalar or key
};

struct TextPosition {  // both count from 1; 0: not known
  int line = 0;
  int column = 0;
};

struct Node {
  struct Entry;

  enum class Kind : uint8_t {
    kNull,
    kBool,
    kInteger,
    kReal,
    kString,
    kList,
    kMap,
  };

  Kind kind = Kind::kNull;
  // For a scalar: as written, without quotes: "8e-4", "yes", "FULL_SHARD".
  std::string text;
  // The value's place; the key in it is the whole path.
  SourceLocation place;
  TextPosition key_position;   // for a value in a map
  std::vector<Node> items;     // for a list
  std::vector<Entry> entries;  // for a map, in order; no key occurs twice

  TextPosition position() const { return {place.line, place.column}; }
  bool is_scalar() const { return kind != Kind::kList && kind != Kind::kMap; }
  // For a map: the value of `key`; null if it has no such key.
  const Node* Find(absl::string_view key) const;
};

struct Node::Entry {
  std::string key;
  Node value;
};

inline const Node* Node::Find(absl::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

}  // namespace dcp::document

#endif  // DOCUMENT_NODE_H_
