// SPDX-License-Identifier: Apache-2.0
// Converts a state dict's plain values to values for pickling, and back. Pure;
// any thread.
#ifndef FSDP_CHECKPOINT_STATE_PLAIN_VALUE_H_
#define FSDP_CHECKPOINT_STATE_PLAIN_VALUE_H_

#include "absl/status/statusor.h"
#include "dcp/format/value/value.h"
#include "fsdp/checkpoint/state/state_value.h"

namespace fsdp {

// For a leaf that is not a tensor. The value lives in `arena`. Unimplemented
// for tensors in tuples.
absl::StatusOr<dcp::Value> ToValue(const StateValue& leaf,
                                   dcp::ValueArena& arena);

// Keys of dicts become text. Unimplemented for Python objects that have no
// counterpart, tensors among them.
absl::StatusOr<StateValue> FromValue(const dcp::Value& value);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_PLAIN_VALUE_H_
