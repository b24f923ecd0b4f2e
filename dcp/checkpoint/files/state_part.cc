// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/state_part.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "dcp/base/option_name.h"
#include "dcp/checkpoint/files/megatron_names.h"

namespace dcp {
namespace {

// Keys that TorchTitan, Megatron and NeMo keep next to a model at the top
// level.
constexpr absl::string_view kExtraRoots[] = {
    "extra",      "common",      "common_state", "lr_scheduler",
    "dataloader", "train_state", "rng_state",    "scheduler"};

// The keys under which training programs keep the model's state dict: PyTorch's
// own, those in the PyTorch tutorials, Lightning's and others.
constexpr absl::string_view kModelRoots[] = {
    "model",   "model_state_dict", "model_state", "state_dict", "net",
    "network", "module",           "params",      "weights",
};
// The same for optimizers, which are recognised by their param_groups, too.
constexpr absl::string_view kOptimizerRoots[] = {
    "optimizer",        "optimizers", "optimizer_state_dict", "optimizer_state",
    "optimizer_states", "optim",      "optim_state_dict",     "opt"};
// Keys around all parts: Composer's, and the one in PyTorch's DCP tutorial.
constexpr absl::string_view kWrappers[] = {"state", "app"};
constexpr absl::string_view kGroups = "param_groups";
constexpr size_t kMaxKeysShown = 10;

bool IsOneOf(absl::Span<const absl::string_view> names,
             absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The number in `root` if it is `first` with one, such as model_1; otherwise
// empty.
std::string RootNumber(absl::string_view root, absl::string_view first) {
  const bool is_numbered =
      absl::ConsumePrefix(&root, first) && absl::ConsumePrefix(&root, "_") &&
      std::all_of(root.begin(), root.end(), absl::ascii_isdigit);
  return is_numbered ? std::string(root) : "";
}

// Element `i` in the path; empty if it is a number or does not exist.
absl::string_view RootElement(const CheckpointEntry& entry, size_t i) {
  if (i >= entry.path.size()) return "";
  const auto* const text = std::get_if<std::string>(&entry.path[i]);
  return text == nullptr ? absl::string_view() : absl::string_view(*text);
}

// For names without paths: those in Megatron and in safetensors.
bool IsOptimizersName(absl::string_view name) {
  if (IsOptimizerName(name)) return true;
  return std::any_of(std::begin(kOptimizerRoots), std::end(kOptimizerRoots),
                     [name](absl::string_view root) {
                       return absl::StartsWith(name,
                                               absl::StrCat(root, ".state."));
                     });
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
  for (const absl::string_view wrapper : kWrappers) {
    const bool has_model = std::any_of(
        entries.begin(), entries.end(), [&](const CheckpointEntry& entry) {
          return entry.path.size() > 2 && RootElement(entry, 0) == wrapper &&
                 IsOneOf(kModelRoots, RootElement(entry, 1));
        });
    if (has_model) wrapper_ = std::string(wrapper);
  }
  const size_t first = wrapper_.empty() ? 0 : 1;
  for (const CheckpointEntry& entry : entries) {
    // Lightning has a list with optimizers.
    for (const size_t i : {first + 1, first + 2}) {
      if (RootElement(entry, i) != kGroups) continue;
      optimizers_.emplace(EntryRoot(entry));
    }
  }
  FindModel(entries);
}

void StateParts::FindModel(absl::Span<const CheckpointEntry> entries) {
  const size_t first = wrapper_.empty() ? 0 : 1;
  std::set<std::string> models;
  for (const CheckpointEntry& entry : entries) {
    // A single element is a tensor that happens to have this name.
    if (entry.path.size() < first + 2) continue;
    const absl::string_view root = EntryRoot(entry);
    if (root == "model") {
      model_ = "model";
      unknown_.clear();
      return;
    }
    if (entry.tensor() == nullptr || optimizers_.contains(root) ||
        IsOneOf(kOptimizerRoots, root) || IsExtraRoot(root) ||
        !RootNumber(root, "model").empty() ||
        !RootNumber(root, "optimizer").empty()) {
      continue;
    }
    if (IsOneOf(kModelRoots, root)) models.emplace(root);
    unknown_.insert(root.empty() ? entry.fqn : std::string(root));
  }
  if (models.size() != 1) return;
  model_ = *models.begin();
  unknown_.clear();
}

absl::Status StateParts::Check() const {
  if (unknown_.empty()) return absl::OkStatus();
  std::vector<std::string> keys(unknown_.begin(), unknown_.end());
  keys.insert(keys.end(), optimizers_.begin(), optimizers_.end());
  std::sort(keys.begin(), keys.end());
  const size_t count = keys.size();
  keys.resize(std::min(count, kMaxKeysShown));
  return OptionError(
      absl::StatusCode::kInvalidArgument,
      "it is not known which part of the state is the model: there are the "
      "keys ",
      absl::StrJoin(keys, ", "), count > kMaxKeysShown ? ", ..." : "",
      "; choose names with ", OptionName{"include"},
      ", and take keys away with ", OptionName{"renames"});
}

absl::string_view StateParts::EntryRoot(const CheckpointEntry& entry) const {
  if (wrapper_.empty()) return RootElement(entry, 0);
  return RootElement(entry, 0) == wrapper_ ? RootElement(entry, 1)
                                           : absl::string_view();
}

StateParts::Place StateParts::EntryPlace(const CheckpointEntry& entry) const {
  const absl::string_view root = EntryRoot(entry);
  const size_t num_roots = wrapper_.empty() ? 1 : 2;
  // A single element is a model's value that happens to have this name.
  const bool is_below = entry.path.size() > num_roots || !model_.empty();
  if (is_below &&
      (optimizers_.contains(root) || IsOneOf(kOptimizerRoots, root))) {
    return {StatePart::kOptimizer, num_roots};
  }
  if (is_below) {
    for (const StatePart part : {StatePart::kModel, StatePart::kOptimizer}) {
      const std::string number = RootNumber(root, StatePartName(part));
      if (!number.empty()) return {part, num_roots, number};
    }
  }
  if (!model_.empty()) {
    if (root == model_) return {StatePart::kModel, num_roots};
    return {StatePart::kExtra, wrapper_.empty() && root == "extra" ? 1u : 0u};
  }
  if (IsOptimizersName(entry.fqn)) return {StatePart::kOptimizer, 0};
  if (entry.tensor() == nullptr || IsExtraRoot(entry.fqn)) {
    return {StatePart::kExtra, 0};
  }
  return {StatePart::kModel, 0};
}

}  // namespace dcp
