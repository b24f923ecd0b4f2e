// SPDX-License-Identifier: Apache-2.0
// Turns a state dict's DTensors into whole tensors, and tensors into copies on
// the CPU. For the thread that trains.
#ifndef FSDP_CHECKPOINT_STATE_FULL_TENSORS_H_
#define FSDP_CHECKPOINT_STATE_FULL_TENSORS_H_

#include "absl/status/status.h"
#include "fsdp/checkpoint/state/state_value.h"

namespace fsdp {

struct FullTensorsOptions {
  bool full = false;  // gathers: collective, one tensor at a time
  bool to_cpu = false;
  // false: this rank takes part but keeps nothing; `state` is empty afterwards.
  bool keep = true;
};

absl::Status MakeFullTensors(const FullTensorsOptions& options,
                             StateDict& state);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_FULL_TENSORS_H_
