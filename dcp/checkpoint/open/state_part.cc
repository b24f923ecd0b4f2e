#include "dcp/checkpoint/open/state_part.h"

#include <string>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/open/dialects/megatron/megatron_names.h"

namespace dcp {
namespace {

// What TorchTitan, Megatron and NeMo keep next to a model at the top level.
constexpr absl::string_view kExtraRoots[] = {
    "extra",      "common",      "common_state", "lr_scheduler",
    "dataloader", "train_state", "rng_state",    "scheduler"};

// Element `i` of the path; empty if it is a number or there is none.
absl::string_view RootAt(const CheckpointEntry& entry, size_t i) {
  if (i >= entry.path.size()) return "";
  const auto* const text = std::get_if<std::string>(&entry.path[i]);
  return text == nullptr ? absl::string_view() : absl::string_view(*text);
}

bool IsExtraRoot(absl::string_view name) {
  for (const absl::string_view root : kExtraRoots) {
    if (name == root || absl::StartsWith(name, absl::StrCat(root, ".")) ||
        absl::StartsWith(name, absl::StrCat(root, "/"))) {
      return true;
    }
  }
  return false;
}

}  // namespace

absl::string_view StatePartName(StatePart part) {
  switch (part) {
    case StatePart::kModel:
      return "model";
    case StatePart::kOptimizer:
      return "optimizer";
    case StatePart::kExtra:
      return "extra";
  }
  return "";
}

absl::StatusOr<StatePart> ParseStatePart(absl::string_view name) {
  for (const StatePart part :
       {StatePart::kModel, StatePart::kOptimizer, StatePart::kExtra}) {
    if (name == StatePartName(part)) return part;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is not model, optimizer or extra"));
}

StateParts::StateParts(absl::Span<const CheckpointEntry> entries) {
  for (const CheckpointEntry& entry : entries) {
    // One element alone is a tensor that happens to be called so.
    if (entry.path.size() < 2) continue;
    if (RootAt(entry, 0) == "model") {
      layout_ = Layout::kRoots;
      return;
    }
    if (RootAt(entry, 0) == "state" && RootAt(entry, 1) == "model") {
      layout_ = Layout::kComposer;
      return;
    }
  }
}

StateParts::Place StateParts::PlaceOf(const CheckpointEntry& entry) const {
  const size_t first = layout_ == Layout::kComposer ? 1 : 0;
  if (layout_ != Layout::kTopLevel) {
    const bool is_below = first == 0 || RootAt(entry, 0) == "state";
    const absl::string_view root = RootAt(entry, first);
    if (is_below && root == "model") return {StatePart::kModel, first + 1};
    if (is_below && (root == "optimizer" || root == "optimizers")) {
      return {StatePart::kOptimizer, first + 1};
    }
    return {StatePart::kExtra, first == 0 && root == "extra" ? 1u : 0u};
  }
  // Megatron's names have no paths.
  if (IsOptimizerName(entry.fqn)) {
    return {StatePart::kOptimizer, RootAt(entry, 0) == "optimizer" ? 1u : 0u};
  }
  if (entry.tensor() == nullptr || IsExtraRoot(entry.fqn)) {
    return {StatePart::kExtra, 0};
  }
  return {StatePart::kModel, 0};
}

}  // namespace dcp
