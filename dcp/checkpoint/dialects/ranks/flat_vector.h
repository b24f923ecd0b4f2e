// SPDX-License-Identifier: Apache-2.0
// FlatVector: parameters that follow one another in one vector, which is cut
// over the ranks in their order: a flat parameter of FSDP1, or what the
// optimizer keeps for one. Plain data; the function is used by one thread.
// Source: torch/distributed/fsdp/_flat_param.py (2.15).
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
  int64_t begin = 0;  // its first element in the vector
  int64_t numel = 0;  // the volume of the shape
};

struct FlatVector {
  std::string name;
  std::vector<FlatParameter> parameters;  // in order, without overlap
  int64_t numel = 0;                      // without padding at the end
  // By rank: its first element in the vector, and how many elements it has,
  // with padding.
  std::vector<int64_t> begins;
  std::vector<int64_t> sizes;
};

// The parameters of a vector whose ranks all have ceil(numel / ranks) elements,
// as FSDP1 cuts it; the last ones may be padding.
void CutEvenly(int64_t numel, int64_t num_ranks, FlatVector& vector);

// Where a parameter's tensor goes.
using FlatPathOf = absl::FunctionRef<StatePath(const std::string& parameter)>;

// Adds `piece`, which `rank` has of the vector, a tensor of one dimension in
// one chunk: each parameter gets the elements that it has in it. The piece may
// leave out the padding at the end. DataLoss if it has another length.
absl::Status AddFlatPiece(const FlatVector& vector, int64_t rank,
                          const TensorEntry& piece, FlatPathOf path_of,
                          StateCollector& collector);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_VECTOR_H_
