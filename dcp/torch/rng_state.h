// The states of the random number generators as part of a state dict. For the
// thread that trains.
//
// One name is one value in a checkpoint: where ranks draw different numbers,
// each keeps its state under a name of its own, "rng.<rank>".
#ifndef DCP_TORCH_RNG_STATE_H_
#define DCP_TORCH_RNG_STATE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/torch/state_value.h"

namespace dcp {

// {"cpu": bytes of torch.get_rng_state() as a uint8 tensor}, and "cuda", the
// current device's, where there is one.
absl::StatusOr<StateDict> get_rng_state();

// The generators go on from there. InvalidArgument for what is no such dict.
// "cuda" is left aside where there is none.
absl::Status set_rng_state(const StateDict& state);

}  // namespace dcp

#endif  // DCP_TORCH_RNG_STATE_H_
