// SPDX-License-Identifier: Apache-2.0
// A StateDict as checkpoint entries: leaves with names, as
// torch.distributed.checkpoint flattens a state dict. Pure, except that
// Stateful objects may have side effects; for the thread that trains.
#ifndef FSDP_CHECKPOINT_STATE_STATE_LEAVES_H_
#define FSDP_CHECKPOINT_STATE_STATE_LEAVES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/tensor/metadata.h"
#include "fsdp/checkpoint/state/state_value.h"

namespace fsdp {

// Whether `value` is a tensor or a DTensor.
bool IsTensor(const StateValue& value);

// `state` with every Stateful replaced by the dict that it returns. Tensors
// alias. Errors name the object. Objects may call collectives, so all are
// asked, even after one has failed, and in an order that does not depend on the
// order in which entries were added: by key in a dict, by position in a list.
absl::StatusOr<StateDict> ExpandState(const StateDict& state);

// The reverse: gives `state` the plain values of `expanded`, which was made
// from it, and Stateful objects their dicts, in the same order.
absl::Status RestoreState(const StateDict& expanded, StateDict& state);

struct StateLeaf {
  std::string fqn;  // path joined with dots
  dcp::StatePath path;
  StateValue* value;  // in the state that was flattened
};

// An expanded state's leaves, in the state's order. Descends into dicts, and
// into lists that hold a tensor, a dict or a list that is itself descended
// into; empty dicts leave nothing behind. InvalidArgument when two leaves have
// the same name.
absl::StatusOr<std::vector<StateLeaf>> FlattenState(StateDict& state);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_STATE_LEAVES_H_
