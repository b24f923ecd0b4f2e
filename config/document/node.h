// SPDX-License-Identifier: Apache-2.0
// Node: a document's scalar, list or map, with a place in the text. Plain data.
#ifndef CONFIG_DOCUMENT_NODE_H_
#define CONFIG_DOCUMENT_NODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "config/document/setting.h"

namespace fsdp::config {

// A config has some kilobytes; these bound the cost of a mistake or an attack.
inline constexpr size_t kMaxDocumentNodes = size_t{1} << 16;
inline constexpr int kMaxDocumentDepth = 64;

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
  std::vector<Node> items;     // for a list
  std::vector<Entry> entries;  // for a map, in order

  bool is_scalar() const { return kind != Kind::kList && kind != Kind::kMap; }
  // For a map: the value of `key`; null if it has no such key.
  const Node* Find(absl::string_view key) const;
};

struct Node::Entry {
  std::string key;
  Node value;
};

}  // namespace fsdp::config

#endif  // CONFIG_DOCUMENT_NODE_H_
