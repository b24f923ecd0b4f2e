// SPDX-License-Identifier: Apache-2.0
// FSDP1's LOCAL_STATE_DICT in the ranks' files: a ShardedTensor with one
// dimension, PREFIX_flat_param, for each wrapped module. With
// use_orig_params=True there are also the parameters by name: views into the
// rank's part of the flat one. Used by one thread. Source:
// torch/distributed/fsdp/_state_dict_utils.py, _flat_param.py (2.15).
#ifndef DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_MODEL_H_
#define DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_MODEL_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/checkpoint/dialects/ranks/flat_hints.h"
#include "dcp/checkpoint/dialects/ranks/rank_part.h"
#include "dcp/checkpoint/files/source_loss.h"
#include "dcp/format/value/value.h"

namespace dcp {

// Whether this is a flat parameter's name.
bool IsFlatName(absl::string_view name);

// Whether a state dict has flat parameters.
bool HasFlatParameters(const Value& model);

// Moves the flat parameters in `model`, and their state in `optimizer` (may be
// null), from the files to `collector`: as the parameters in them as far as
// these are known, from views or from `hints`. The optimizer's numbers follow
// the model's order if `in_order`, or if no other order fits. Returns the
// losses. DataLoss if the ranks contradict each other, InvalidArgument if the
// hints contradict the files. New values are made in `arena`.
absl::StatusOr<std::vector<SourceLoss>> TakeFlatModel(
    const RankState& model, const RankState* optimizer, const FlatHints& hints,
    bool in_order, ValueArena& arena, StateCollector& collector);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_MODEL_H_
