// SPDX-License-Identifier: Apache-2.0
// One rank's part of the optimizer's groups in DeepSpeed's ZeRO: flat vectors,
// and values that all parameters in a group have in common. Used by one thread.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, stage3.py.
#ifndef DCP_CHECKPOINT_DIALECTS_DEEPSPEED_ZERO_STATE_H_
#define DCP_CHECKPOINT_DIALECTS_DEEPSPEED_ZERO_STATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/dialects/deepspeed/deepspeed_state.h"
#include "dcp/checkpoint/dialects/deepspeed/zero_vector.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// One rank's flat vectors by key: kMasterKey for the weights in the optimizer's
// precision, others are the optimizer's.
using ZeroVectors = std::map<std::string, ZeroVector>;
inline constexpr char kMasterKey[] = "";

// model.NAME for kMasterKey, otherwise optimizer.state.NAME.KEY.
StatePath ZeroPath(const DeepSpeedParameter& parameter, const std::string& key);

// DataLoss if `value`, which is in `pickle`, is not a tensor.
absl::StatusOr<TensorEntry> TensorIn(const DeepSpeedPickle& pickle,
                                     const Value& value);

// DataLoss if `list` has no such item; `name` is for the message.
absl::StatusOr<Value> GetItem(const Value& list, size_t index,
                              absl::string_view name);

// The optimizer's state for each group (for stage 3, sub-group) on one rank,
// out of torch.optim's state_dict() or an elastic checkpoint's list; None where
// the optimizer has made none. DataLoss unless there are `num_groups`.
absl::StatusOr<std::vector<Value>> ParseGroupStates(const Value& inner,
                                                    size_t num_groups);

// Appends the vectors in a group's state to the earlier ones.
absl::Status AppendStates(const DeepSpeedPickle& pickle, const Value& state,
                          ZeroVectors& vectors);

// Adds the values on `rank` that all parameters in a group share, such as the
// step, under one parameter.
absl::Status AddCommonStates(const DeepSpeedPickle& pickle, int64_t rank,
                             const Value& state,
                             const DeepSpeedParameter& parameter,
                             StateCollector& collector);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_DEEPSPEED_ZERO_STATE_H_
