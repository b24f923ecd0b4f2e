// SPDX-License-Identifier: Apache-2.0
// A state dict that only rank 0 has: describes it to the other ranks, and sends
// each of them its parts of the tensors through a window of bounded size. For
// the thread that trains; collective over the coordinator's ranks.
#ifndef FSDP_CHECKPOINT_RANKS_RANK0_STATE_H_
#define FSDP_CHECKPOINT_RANKS_RANK0_STATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/checkpoint/state/tensor_copies.h"

namespace fsdp {

// Returns `state` itself on rank 0; elsewhere its plain values, and for each
// tensor one of the same shape and type on the meta device. InvalidArgument on
// every rank when rank 0's state holds DTensors.
absl::StatusOr<StateDict> ShareStateOfRank0(
    ProcessGroupCoordinator& coordinator, const StateDict& state);

// Makes the copies, the same ones by name on every rank, whose sources are
// tensors of a dict from ShareStateOfRank0. A tensor that every rank needs
// whole is broadcast; of the others, rank 0 sends each rank its part. In
// addition to the tensors, every rank holds at most about `window_bytes`.
absl::Status CopyFromRank0(ProcessGroupCoordinator& coordinator,
                           absl::Span<const TensorCopy> copies,
                           uint64_t window_bytes);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_RANKS_RANK0_STATE_H_
