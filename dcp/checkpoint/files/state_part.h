// SPDX-License-Identifier: Apache-2.0
// StatePart: the part of a training state to which an entry belongs, under
// whatever names the checkpoint uses. Pure; any thread.
#ifndef DCP_CHECKPOINT_FILES_STATE_PART_H_
#define DCP_CHECKPOINT_FILES_STATE_PART_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"

namespace dcp {

enum class StatePart : uint8_t { kModel, kOptimizer, kExtra };

// "model", "optimizer" or "extra".
absl::string_view StatePartName(StatePart part);
absl::StatusOr<StatePart> ParseStatePart(absl::string_view name);

// How a checkpoint divides the state: below roots with known names (model,
// model_state_dict, state_dict, net, module, params and others), or with the
// model at the top level. Any root with param_groups is an optimizer.
class StateParts {
 public:
  // Looks at all entries in the checkpoint, and does not keep their paths.
  explicit StateParts(absl::Span<const CheckpointEntry> entries);

  // InvalidArgument, with the keys found, if tensors are below keys and none of
  // the keys is known to be the model. EntryPlace then takes them for the
  // model.
  absl::Status Check() const;

  struct Place {
    StatePart part = StatePart::kModel;
    // How many path elements only name the part: 1 for model.w, 2 for
    // Composer's state.model.w, none if the model is at the top level, as in
    // TorchTitan and Megatron.
    size_t num_roots = 0;
    // "1" for model_1.w and optimizer_1.state, accelerate's second model; empty
    // for the first.
    std::string number = {};
  };
  Place EntryPlace(const CheckpointEntry& entry) const;

 private:
  // The path element that names the part; empty if there is none.
  absl::string_view EntryRoot(const CheckpointEntry& entry) const;
  void FindModel(absl::Span<const CheckpointEntry> entries);

  // The key around all parts, such as Composer's "state"; empty if there is
  // none.
  std::string wrapper_;
  // The model's root; empty if it is at the top level.
  std::string model_;
  // The roots with param_groups below them.
  absl::flat_hash_set<std::string> optimizers_;
  // Keys that are not known, with tensors below them.
  std::set<std::string> unknown_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_STATE_PART_H_
