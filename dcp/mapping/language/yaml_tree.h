// SPDX-License-Identifier: Apache-2.0
// YamlTree: a rule file as a tree of texts, lists and maps, with their lines. A
// small part of YAML: there are no anchors, aliases, merge keys, tags and
// further documents, so the tree is as large as the text, and numbers and truth
// values stay texts. Pure; any thread.
#ifndef DCP_MAPPING_LANGUAGE_YAML_TREE_H_
#define DCP_MAPPING_LANGUAGE_YAML_TREE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp {

struct YamlTree {
  struct Entry;
  enum class Kind : uint8_t {
    kNull,  // no value, or ~ or null without quotes
    kText,
    kList,
    kMap,
  };

  Kind kind = Kind::kNull;
  std::string text;             // for a text, without quotes
  std::vector<YamlTree> items;  // for a list
  std::vector<Entry> entries;   // for a map, in order; no key occurs twice
  int line = 0;                 // from 1
  int column = 0;               // from 1

  bool is(Kind k) const { return kind == k; }
  // For a map: the value for `key`; null if it has no such key.
  const YamlTree* Find(absl::string_view key) const;
};

struct YamlTree::Entry {
  std::string key;
  int line = 0;
  int column = 0;
  YamlTree value;
};

// InvalidArgument, beginning with "`file_name`:LINE:COLUMN: ", if `text` is not
// such YAML or exceeds kMaxMappingBytes, kMaxMappingNodes, kMaxMappingDepth or,
// in one text, kMaxMappingTextBytes.
absl::StatusOr<YamlTree> ParseYamlTree(absl::string_view text,
                                       absl::string_view file_name);

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_YAML_TREE_H_
