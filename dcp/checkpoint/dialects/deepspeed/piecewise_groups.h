// SPDX-License-Identifier: Apache-2.0
// Stage 3 in ZeRO: each parameter is cut into equal pieces, and a rank's pieces
// follow one another, sub-group after sub-group. Used by one thread. Source:
// deepspeed/runtime/zero/stage3.py (0.19.8).
#ifndef DCP_CHECKPOINT_DIALECTS_DEEPSPEED_PIECEWISE_GROUPS_H_
#define DCP_CHECKPOINT_DIALECTS_DEEPSPEED_PIECEWISE_GROUPS_H_

#include "absl/status/status.h"
#include "dcp/checkpoint/dialects/deepspeed/deepspeed_state.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"

namespace dcp {

// Adds model.* and optimizer.state.* for the parameters in all groups. DataLoss
// when sizes do not add up.
absl::Status AddPiecewiseGroups(const DeepSpeedState& state,
                                StateCollector& collector);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_DEEPSPEED_PIECEWISE_GROUPS_H_
