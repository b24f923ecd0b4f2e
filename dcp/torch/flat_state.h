// A StateDict as the entries of a checkpoint: its leaves with their names, as
// torch.distributed.checkpoint flattens a state dict, and its plain values as
// what is pickled. Pure but for what Stateful objects do; for the thread that
// trains.
#ifndef DCP_TORCH_FLAT_STATE_H_
#define DCP_TORCH_FLAT_STATE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/format/value.h"
#include "dcp/tensor/metadata.h"
#include "dcp/torch/state_value.h"

namespace dcp {

// `state` with every Stateful replaced by the dict that it gives. Tensors
// alias. Errors name the object. Objects may make collectives, so all are
// asked, also after one that failed, and in an order that does not depend on
// in which entries were added: by key in a dict, by position in a list.
absl::StatusOr<StateDict> ExpandState(const StateDict& state);

// The way back: gives `state` the plain values of `expanded`, which was made
// of it, and Stateful objects their dicts, likewise.
absl::Status RestoreState(const StateDict& expanded, StateDict& state);

struct StateLeaf {
  std::string fqn;  // path joined with dots
  StatePath path;
  StateValue* value;  // in the state that was flattened
};

// The leaves of an expanded state, in its order. Dicts are descended into, and
// lists that hold a tensor, a dict or a list that is itself descended into;
// empty dicts leave nothing behind. InvalidArgument when two leaves have one
// name.
absl::StatusOr<std::vector<StateLeaf>> FlattenState(StateDict& state);

// A leaf that is no tensor. The value lives in `arena`. Unimplemented for
// tensors in tuples.
absl::StatusOr<Value> ToValue(const StateValue& leaf, ValueArena& arena);

// Keys of dicts become text. Unimplemented for Python objects that have no
// counterpart, tensors among them.
absl::StatusOr<StateValue> FromValue(const Value& value);

}  // namespace dcp

#endif  // DCP_TORCH_FLAT_STATE_H_
