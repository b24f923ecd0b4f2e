// SPDX-License-Identifier: Apache-2.0
// Finds keys in a map.
//
// Tested by tests/config/document/document_test.cc.
#include "config/document/node.h"

namespace fsdp::config {

const Node* Node::Find(absl::string_view key) const {
  for (const auto& [known, value] : entries) {
    if (known == key) return &value;
  }
  return nullptr;
}

}  // namespace fsdp::config
