// SPDX-License-Identifier: Apache-2.0
// StatePart: which part of a training state an entry belongs to, whatever its
// checkpoint calls it. Pure; any thread.
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

// How a checkpoint divides its state: below roots that are known by their names
// (model, model_state_dict, state_dict, net, module, params and others), or
// with the model at the top level. Whatever has param_groups is an optimizer.
class StateParts {
 public:
  // Looks at all entries of the checkpoint, and does not keep their paths.
  explicit StateParts(absl::Span<const CheckpointEntry> entries);

  // InvalidArgument, with the keys that are there, if tensors are below keys
  // of which none is known to be the model. EntryPlace takes them for the model
  // then.
  absl::Status Check() const;

  struct Place {
    StatePart part = StatePart::kModel;
    // How many elements of the path only name the part: 1 of model.w, 2 of
    // Composer's state.model.w, none if the model is at the top level, as
    // TorchTitan and Megatron have it.
    size_t num_roots = 0;
    // "1" for model_1.w and optimizer_1.state, those of a second model of
    // accelerate; empty for the first.
    std::string number = {};
  };
  Place EntryPlace(const CheckpointEntry& entry) const;

 private:
  // The element of the path that names the part; empty if there is none.
  absl::string_view EntryRoot(const CheckpointEntry& entry) const;
  void FindModel(absl::Span<const CheckpointEntry> entries);

  // The key around all parts, such as Composer's "state"; empty if there is
  // none.
  std::string wrapper_;
  // The root of the model; empty if it is at the top level.
  std::string model_;
  // The roots with param_groups below them.
  absl::flat_hash_set<std::string> optimizers_;
  // Keys that are not known, with tensors below them.
  std::set<std::string> unknown_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_STATE_PART_H_
