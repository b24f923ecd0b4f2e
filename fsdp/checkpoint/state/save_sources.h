// SPDX-License-Identifier: Apache-2.0
// SaveSources: a StateDict as the core saves it: this rank's boxes with their
// memory, and pickled plain values. Plain values may therefore change at once,
// and tensors once they have been copied. Made by the thread that trains,
// because copies from an accelerator wait for that thread's streams.
//
// [Note: small tensors]
// A forward changes running statistics and counters, such as BatchNorm's. It
// would have to wait for all tensors' copies. So a background save copies
// tensors that are not cut and have at most 64 KiB when it begins. It copies
// all such tensors on one device at once, because an optimizer may have
// thousands of step counts.
#ifndef FSDP_CHECKPOINT_STATE_SAVE_SOURCES_H_
#define FSDP_CHECKPOINT_STATE_SAVE_SOURCES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/format/value/value.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/checkpoint/state/tensor_io.h"

namespace fsdp {

struct SaveSources {
  // A state that holds only the error because of which this rank cannot save.
  static std::unique_ptr<SaveSources> Failed(absl::Status status);

  dcp::SaveState state;
  // About how many bytes this rank, one in `num_ranks`, writes; ranks share
  // replicas.
  uint64_t share_bytes = 0;

  // Memory that `state` refers to.
  dcp::ValueArena arena;
  std::vector<std::unique_ptr<TorchTensorSource>> sources;

  // The memory that the sources read.
  std::vector<at::Tensor> tensors() const;
};

// state.status names entries that cannot be stored (InvalidArgument,
// Unimplemented), so that this rank can still take part in the save.
// `copies_small`: see Note: small tensors.
std::unique_ptr<SaveSources> MakeSaveSources(const StateDict& state,
                                             int64_t num_ranks,
                                             bool copies_small = false);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_SAVE_SOURCES_H_
