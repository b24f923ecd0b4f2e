// SPDX-License-Identifier: Apache-2.0
// Follows "${...}" within bounds.
//
// Tested by tests/config/dialects/composer/read_test.cc.
#include "config/dialects/fields/references.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace fsdp::config {
namespace {

// A reference may name a reference; a longer chain counts as a cycle.
constexpr int kMaxHops = 8;
// A config has a few dozen short ones; these bound the cost of a hostile one.
constexpr int kMaxReferences = 1000;
constexpr size_t kMaxTextBytes = 4096;

// "variables.seed" for "${variables.seed}".
std::optional<absl::string_view> ReferencePath(const Node& node) {
  absl::string_view text = node.text;
  if (node.kind != Node::Kind::kString || !absl::ConsumePrefix(&text, "${") ||
      !absl::ConsumeSuffix(&text, "}") || absl::StrContains(text, "${")) {
    return std::nullopt;
  }
  return text;
}

const Node* At(const Node& root, absl::string_view path) {
  const Node* node = &root;
  for (absl::string_view key : absl::StrSplit(path, '.')) {
    node = node->Find(key);
    if (node == nullptr) return nullptr;
  }
  return node;
}

// The scalar at the end of a reference chain; null if there is none.
const Node* FindTarget(const Node& root, const Node& reference) {
  const Node* target = &reference;
  for (int hop = 0; hop < kMaxHops; ++hop) {
    const std::optional<absl::string_view> path = ReferencePath(*target);
    if (!path.has_value()) return target;
    target = At(root, *path);
    if (target == nullptr || !target->is_scalar()) return nullptr;
  }
  return nullptr;
}

// "runs/tune/logs" for "runs/${name}/logs"; nothing if a reference has no
// scalar, or the text becomes too long.
std::optional<std::string> FillReferences(const Node& root,
                                          absl::string_view text, int hop,
                                          int& num_left) {
  std::string filled;
  for (size_t begin = text.find("${"); begin != absl::string_view::npos;
       begin = text.find("${")) {
    const size_t end = text.find('}', begin);
    if (end == absl::string_view::npos || hop == kMaxHops || --num_left < 0) {
      return std::nullopt;
    }
    const Node* target = At(root, text.substr(begin + 2, end - begin - 2));
    if (target == nullptr || !target->is_scalar()) return std::nullopt;
    const std::optional<std::string> value =
        FillReferences(root, target->text, hop + 1, num_left);
    if (!value.has_value()) return std::nullopt;
    absl::StrAppend(&filled, text.substr(0, begin), *value);
    if (filled.size() > kMaxTextBytes) return std::nullopt;
    text.remove_prefix(end + 1);
  }
  if (filled.size() + text.size() > kMaxTextBytes) return std::nullopt;
  return absl::StrCat(filled, text);
}

void Resolve(const Node& root, Node& node, int& num_left) {
  for (Node& item : node.items) Resolve(root, item, num_left);
  for (auto& [key, value] : node.entries) Resolve(root, value, num_left);
  if (ReferencePath(node).has_value() && --num_left >= 0) {
    const Node* target = FindTarget(root, node);
    if (target == nullptr || target->text.size() > kMaxTextBytes) return;
    node.kind = target->kind;
    node.text = target->text;
  }
  if (node.kind != Node::Kind::kString || !absl::StrContains(node.text, "${")) {
    return;
  }
  if (std::optional<std::string> text =
          FillReferences(root, node.text, 0, num_left)) {
    node.text = *std::move(text);
  }
}

}  // namespace

Node ResolveReferences(const Node& root) {
  Node resolved = root;
  int num_left = kMaxReferences;
  Resolve(root, resolved, num_left);
  return resolved;
}

}  // namespace fsdp::config
