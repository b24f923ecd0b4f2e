// HeldState: a StateDict as the core saves it: the boxes of this rank with
// their memory, plain values already as pickled ones, so that these may change
// at once and tensors once they have been copied. Made by the thread that
// trains, which is where copies of an accelerator wait from.
#ifndef DCP_TORCH_HELD_STATE_H_
#define DCP_TORCH_HELD_STATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "dcp/checkpoint/save.h"
#include "dcp/format/value.h"
#include "dcp/torch/state_value.h"
#include "dcp/torch/tensor_io.h"

namespace dcp {

struct HeldState {
  // Nothing but the error with which this rank comes.
  static std::unique_ptr<HeldState> Failed(absl::Status status);

  SaveState state;
  // About what this rank of `num_ranks` writes of it, replicas being spread.
  uint64_t share_bytes = 0;

  // What `state` refers to.
  ValueArena arena;
  std::vector<std::unique_ptr<TorchTensorSource>> sources;
};

// What cannot be stored is told by name in state.status (InvalidArgument,
// Unimplemented), so that this rank can take part in the save all the same.
std::unique_ptr<HeldState> HoldState(const StateDict& state, int64_t num_ranks);

}  // namespace dcp

#endif  // DCP_TORCH_HELD_STATE_H_
