// SPDX-License-Identifier: Apache-2.0
// Adds the state below the folder zero/ in a universal DeepSpeed checkpoint
// (ds_to_universal.py): for each parameter a folder with the whole weights and
// moments. Used by one thread. Source: deepspeed/checkpoint/ds_to_universal.py,
// universal_checkpoint.py (0.19.8).
#ifndef DCP_CHECKPOINT_DIALECTS_DEEPSPEED_UNIVERSAL_STATE_H_
#define DCP_CHECKPOINT_DIALECTS_DEEPSPEED_UNIVERSAL_STATE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/deepspeed/deepspeed_state.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/format/value/value.h"

namespace dcp {

// Adds optimizer.state.* for the parameters in param_shapes, and model.* if
// `with_masters` (always for stage 3), and for those that the model states do
// not have. NotFound if a parameter's file is missing; DataLoss if a shape
// differs.
absl::Status AddUniversalState(const DeepSpeedState& state, bool with_masters,
                               StateCollector& collector);

// The part of rank 0's optimizer state_dict() that is kept; for NamedGroups.
Value UniversalOptimizer(const DeepSpeedState& state);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_DEEPSPEED_UNIVERSAL_STATE_H_
