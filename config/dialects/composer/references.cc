// Tested by tests/config/dialects/composer/read_test.cc.
#include "config/dialects/composer/references.h"

#include <optional>

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
std::optional<absl::string_view> PathOf(const Node& node) {
  absl::string_view text = node.text;
  if (node.kind != Node::Kind::kString || !absl::ConsumePrefix(&text, "${") ||
      !absl::ConsumeSuffix(&text, "}")) {
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

// The scalar at the end of a chain of references; null if there is none.
const Node* TargetOf(const Node& root, const Node& reference) {
  const Node* target = &reference;
  for (int hop = 0; hop < kMaxHops; ++hop) {
    const std::optional<absl::string_view> path = PathOf(*target);
    if (!path.has_value()) return target;
    target = At(root, *path);
    if (target == nullptr || !target->is_scalar()) return nullptr;
  }
  return nullptr;
}

void Resolve(const Node& root, Node& node, int& num_left) {
  for (Node& item : node.items) Resolve(root, item, num_left);
  for (auto& [key, value] : node.entries) Resolve(root, value, num_left);
  if (!PathOf(node).has_value() || --num_left < 0) return;
  const Node* target = TargetOf(root, node);
  if (target == nullptr || target->text.size() > kMaxTextBytes) return;
  node.kind = target->kind;
  node.text = target->text;
}

}  // namespace

Node ResolveReferences(const Node& root) {
  Node resolved = root;
  int num_left = kMaxReferences;
  Resolve(root, resolved, num_left);
  return resolved;
}

}  // namespace fsdp::config
