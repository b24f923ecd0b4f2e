// SPDX-License-Identifier: Apache-2.0
// The random number generators' states as part of a state dict. For the thread
// that trains.
//
// A name has one value in a checkpoint: if ranks draw different numbers, each
// must store the state under a separate name, "rng.<rank>".
#ifndef FSDP_CHECKPOINT_STATE_RNG_STATE_H_
#define FSDP_CHECKPOINT_STATE_RNG_STATE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/checkpoint/state/state_value.h"

namespace fsdp {

// Returns {"cpu": bytes of torch.get_rng_state() as a uint8 tensor}, and
// "cuda", the current device's state, if there is a device.
absl::StatusOr<StateDict> get_rng_state();

// Sets the generators to `state`. InvalidArgument if it is not such a dict.
// "cuda" is ignored if there is no device.
absl::Status set_rng_state(const StateDict& state);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_RNG_STATE_H_
