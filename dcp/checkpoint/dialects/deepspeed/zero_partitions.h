// SPDX-License-Identifier: Apache-2.0
// Adds the weights and the optimizer's state of ZeRO to a state: computes which
// elements of the flat vectors of each rank belong to which parameter. Used by
// one thread. Sources: deepspeed/runtime/zero/stage_1_and_2.py,
// runtime/zero/stage3.py, utils/zero_to_fp32.py (0.19.8).
//
// partitioned_group.h and piecewise_groups.h say how the stages cut. The order
// of the parameters is that of param_shapes for both; param_slice_mappings are
// wrong for round_robin_gradients.
#ifndef DCP_CHECKPOINT_DIALECTS_DEEPSPEED_ZERO_PARTITIONS_H_
#define DCP_CHECKPOINT_DIALECTS_DEEPSPEED_ZERO_PARTITIONS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/deepspeed/deepspeed_state.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/format/value/value.h"

namespace dcp {

// Adds optimizer.state.* of the parameters that are trained, and model.* if
// `with_masters` (always for stage 3). DataLoss when sizes do not add up.
absl::Status AddZeroPartitions(const DeepSpeedState& state, bool with_masters,
                               StateCollector& collector);

// Adds model.* of the frozen parameters, of which stage 3 has a piece on each
// rank, stage 2 the whole, and stage 1 nothing.
absl::Status AddFrozenParameters(const DeepSpeedState& state,
                                 StateCollector& collector);

// The param_groups of `inner`, the optimizer's state_dict() of rank 0, with the
// names of their parameters: a list of dicts, made in `arena`.
absl::StatusOr<Value> NamedGroups(const DeepSpeedState& state,
                                  const Value& inner, ValueArena& arena);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_DEEPSPEED_ZERO_PARTITIONS_H_
