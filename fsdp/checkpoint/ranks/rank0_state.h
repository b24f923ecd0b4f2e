// SPDX-License-Identifier: Apache-2.0
// Shares a state dict that only rank 0 has: describes it to the other ranks,
// and sends each rank its tensor parts through a window of bounded size. For
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

// Returns `state` itself on rank 0; elsewhere the plain values, and for each
// tensor a meta tensor with the same shape and type. InvalidArgument on every
// rank when rank 0's state holds DTensors.
absl::StatusOr<StateDict> ShareRank0State(ProcessGroupCoordinator& coordinator,
                                          const StateDict& state);

// Makes the copies, with the same names on every rank. Their sources are
// tensors from a ShareRank0State dict. A tensor that every rank needs whole
// is broadcast; for other tensors, rank 0 sends each rank a part. In addition
// to the tensors, every rank holds at most about `window_bytes`.
absl::Status CopyFromRank0(ProcessGroupCoordinator& coordinator,
                           absl::Span<const TensorCopy> copies,
                           uint64_t window_bytes);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_RANKS_RANK0_STATE_H_
