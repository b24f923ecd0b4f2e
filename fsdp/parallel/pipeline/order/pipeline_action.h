// SPDX-License-Identifier: Apache-2.0
// PipelineAction: one piece of a stage's work on one microbatch, and the text
// form that PyTorch gives it (torch/distributed/pipelining/schedules.py, 2.15).
// Pure; any thread.
#ifndef FSDP_PARALLEL_PIPELINE_ORDER_PIPELINE_ACTION_H_
#define FSDP_PARALLEL_PIPELINE_ORDER_PIPELINE_ACTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace fsdp {

struct PipelineShape {
  int64_t num_ranks = 1;
  int64_t stages_per_rank = 1;
  int64_t num_microbatches = 1;

  int64_t num_stages() const { return num_ranks * stages_per_rank; }
};

struct PipelineAction {
  // kBackward computes all gradients. kBackwardInput computes the gradients for
  // the stage's inputs alone, and kBackwardWeight the parameters' later.
  enum class Kind { kForward, kBackward, kBackwardInput, kBackwardWeight };
  Kind kind;
  int64_t stage;
  int64_t microbatch;

  // Whether the action gives the previous stage its gradients.
  bool gives_input_gradients() const {
    return kind == Kind::kBackward || kind == Kind::kBackwardInput;
  }
  // Whether the action adds to the parameters' gradients.
  bool gives_weight_gradients() const {
    return kind == Kind::kBackward || kind == Kind::kBackwardWeight;
  }

  friend bool operator==(const PipelineAction&,
                         const PipelineAction&) = default;
};

// Numbers in a text form are below this.
inline constexpr int64_t kMaxActionNumber = 1000000;

// A rank's work in one step of the clock: nothing, one action, or a forward and
// a backward that PyTorch calls OVERLAP_F_B. Here they run one after the other.
using PipelineSlot = std::vector<PipelineAction>;
// By rank: the slots in order.
using PipelineOrder = std::vector<std::vector<PipelineSlot>>;

// "2F0", "2B0", "2I0" or "2W0".
std::string to_string(const PipelineAction& action);
// "", "2F0" or "(2F0;5B1)OVERLAP_F_B".
std::string to_string(const PipelineSlot& slot);
// The reverse. Throws c10::ValueError that quotes a text without this form, and
// for PyTorch's other actions (SEND_F, UNSHARD ...): those follow from the
// order, and are not written into it.
PipelineSlot ParsePipelineSlot(absl::string_view text);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_ORDER_PIPELINE_ACTION_H_
