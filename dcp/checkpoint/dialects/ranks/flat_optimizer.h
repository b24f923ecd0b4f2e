// SPDX-License-Identifier: Apache-2.0
// FSDP1's optimizer state where each rank saved its own optimizer.state_dict():
// vectors, each a piece of a flat parameter's state, or of the state for a
// parameter that is itself cut without regard to rows. Used by one thread.
// Source: torch/distributed/fsdp/_flat_param.py, _optim_utils.py (2.15).
#ifndef DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_OPTIMIZER_H_
#define DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_OPTIMIZER_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/checkpoint/dialects/ranks/flat_vector.h"
#include "dcp/checkpoint/dialects/ranks/rank_part.h"
#include "dcp/format/value/value.h"

namespace dcp {

// Vectors that are cut over the ranks, by the optimizer's numbers.
using FlatVectors = std::map<int64_t, FlatVector>;

// The states by number, without names or shapes: each is as long as all pieces
// together, padding included. Empty if this is not such an optimizer: there is
// one rank only, or a tensor has several dimensions or is sharded. DataLoss if
// one number's tensors have different lengths on one rank.
absl::StatusOr<FlatVectors> FindFlatOptimizer(const RankState& optimizer);

// Whether no two vectors have the same element count, so that a wrong order
// would not fit.
bool HaveDistinctSizes(const FlatVectors& vectors);

// The known facts about the order in which the optimizer got the parameters.
struct FlatOrder {
  // Such as "model.layers.*": number k belongs to the parameters below the k-th
  // module that it matches, and number 0 to all others. Empty if not known.
  std::string unit_glob;
  bool in_order = false;  // in the model's order
};

// Gives `vectors`, which FindFlatOptimizer found, the names and shapes of the
// parameters in `model`, the state dict in rank 0's `file`, if that is certain.
// InvalidArgument if the units in `order` have another element count than the
// states. Tied parameters count once: FSDP1 saves them as copies, so matrices
// with equal bytes (by CRC-32) are taken for tied if the counts do not fit
// otherwise. Returns whether names were found.
absl::StatusOr<bool> NameFlatOptimizer(const RankFile& file, const Value& model,
                                       const Value& optimizer,
                                       const FlatOrder& order,
                                       FlatVectors& vectors);

// Moves the state for `vectors` from the files to `collector`, and writes names
// into the groups that stay in the files. DataLoss if a piece's length differs
// from the vector's. New values are made in `arena`.
absl::Status TakeFlatOptimizer(const RankState& optimizer,
                               const FlatVectors& vectors, ValueArena& arena,
                               StateCollector& collector);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_OPTIMIZER_H_
