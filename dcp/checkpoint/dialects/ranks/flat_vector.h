// SPDX-License-Identifier: Apache-2.0
// FlatVector: parameters that follow one another in one vector, which is cut
// over the ranks in their order: a flat FSDP1 parameter, or the optimizer's
// state for one. Plain data; the function is used by one thread. Source:
// torch/distributed/fsdp/_flat_param.py (2.15).
#ifndef DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_VECTOR_H_
#define DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_VECTOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

struct FlatParameter {
  std::string name;
  Dims shape;
  int64_t begin = 0;  // the first element in the vector
  int64_t numel = 0;  // the shape's volume
};

struct FlatVector {
  std::string name;
  std::vector<FlatParameter> parameters;  // in order, without overlap
  int64_t numel = 0;                      // without padding at the end
  // By rank: the first element in the vector, and the element count with
  // padding.
  std::vector<int64_t> begins;
  std::vector<int64_t> sizes;
};

// Cuts a vector as FSDP1 does: all ranks have ceil(numel / ranks) elements; the
// last ones may be padding.
void CutEvenly(int64_t numel, int64_t num_ranks, FlatVector& vector);

// Where a parameter's tensor goes.
using FlatPathFunction =
    absl::FunctionRef<StatePath(const std::string& parameter)>;

// Adds `piece`, rank `rank`'s part of the vector, as a tensor with one
// dimension and one chunk: each parameter gets the elements in the piece that
// belong to it. The piece may leave out the padding at the end. DataLoss if it
// has another length.
absl::Status AddFlatPiece(const FlatVector& vector, int64_t rank,
                          const TensorEntry& piece, FlatPathFunction path_of,
                          StateCollector& collector);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_VECTOR_H_
