// SPDX-License-Identifier: Apache-2.0
// Stages 1 and 2 in ZeRO: a group's parameters follow one another in one
// vector, perhaps with gaps for alignment, which is cut into equal partitions.
// Used by one thread. Source: deepspeed/runtime/zero/stage_1_and_2.py (0.19.8).
#ifndef DCP_CHECKPOINT_DIALECTS_DEEPSPEED_PARTITIONED_GROUPS_H_
#define DCP_CHECKPOINT_DIALECTS_DEEPSPEED_PARTITIONED_GROUPS_H_

#include "absl/status/status.h"
#include "dcp/checkpoint/dialects/deepspeed/deepspeed_state.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"

namespace dcp {

// Adds optimizer.state.* for the parameters in all groups, and model.* if
// `with_masters`. DataLoss when sizes do not add up.
absl::Status AddPartitionedGroups(const DeepSpeedState& state,
                                  bool with_masters, StateCollector& collector);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_DEEPSPEED_PARTITIONED_GROUPS_H_
