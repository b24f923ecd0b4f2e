// SPDX-License-Identifier: Apache-2.0
// SaveSources: a StateDict as the core saves it: the boxes of this rank with
// their memory, and plain values already pickled, so that plain values may
// change at once and tensors once they have been copied. Made by the thread
// that trains, because copies from an accelerator wait for that thread's
// streams.
//
// [Note: small tensors]
// A forward changes running statistics and counters of its own, such as those
// of BatchNorm. It would have to wait for the copies of all tensors. So a save
// in the background copies tensors of at most 64 KiB that are not cut when it
// begins, all of one device at once, because an optimizer may have thousands of
// numbers of steps.
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
  // About the bytes that this rank, one of `num_ranks`, writes; ranks share
  // replicas.
  uint64_t share_bytes = 0;

  // What `state` refers to.
  dcp::ValueArena arena;
  std::vector<std::unique_ptr<TorchTensorSource>> sources;

  // The memory that the sources read.
  std::vector<at::Tensor> tensors() const;
};

// state.status names what cannot be stored (InvalidArgument, Unimplemented), so
// that this rank can still take part in the save. `copies_small`: see
// Note: small tensors.
std::unique_ptr<SaveSources> MakeSaveSources(const StateDict& state,
                                             int64_t num_ranks,
                                             bool copies_small = false);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_SAVE_SOURCES_H_
