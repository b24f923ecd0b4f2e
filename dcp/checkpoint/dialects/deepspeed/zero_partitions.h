// SPDX-License-Identifier: Apache-2.0
// Adds ZeRO's weights and optimizer state to a state: computes which elements
// in each rank's flat vectors belong to which parameter. Used by one thread.
// Sources: deepspeed/runtime/zero/stage_1_and_2.py, runtime/zero/stage3.py,
// utils/zero_to_fp32.py (0.19.8).
//
// partitioned_groups.h and piecewise_groups.h say how the stages cut. Both use
// the parameter order in param_shapes; param_slice_mappings are wrong for
// round_robin_gradients.
#ifndef DCP_CHECKPOINT_DIALECTS_DEEPSPEED_ZERO_PARTITIONS_H_
#define DCP_CHECKPOINT_DIALECTS_DEEPSPEED_ZERO_PARTITIONS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/deepspeed/deepspeed_state.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/format/value/value.h"

namespace dcp {

// Adds optimizer.state.* for the trained parameters, and model.* if
// `with_masters` (always for stage 3). DataLoss when sizes do not add up.
absl::Status AddZeroPartitions(const DeepSpeedState& state, bool with_masters,
                               StateCollector& collector);

// Adds model.* for the frozen parameters: stage 3 has a piece on each rank,
// stage 2 the whole, and stage 1 nothing.
absl::Status AddFrozenParameters(const DeepSpeedState& state,
                                 StateCollector& collector);

// The param_groups in `inner`, rank 0's optimizer state_dict(), with the
// parameters' names: a list of dicts, made in `arena`.
absl::StatusOr<Value> NamedGroups(const DeepSpeedState& state,
                                  const Value& inner, ValueArena& arena);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_DEEPSPEED_ZERO_PARTITIONS_H_
