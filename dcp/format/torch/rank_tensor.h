// SPDX-License-Identifier: Apache-2.0
// RankTensor: the part of a tensor that one rank holds, according to that
// rank's pickle: a DTensor, or a ShardedTensor from FSDP1. Finds it in a Value
// tree and computes the place of the elements in the whole tensor; executes no
// code. Pure; any thread.
//
// Sources: torch/distributed/tensor (_api.py, _dtensor_spec.py,
// placement_types.py), torch/distributed/device_mesh.py,
// torch/distributed/_shard/sharded_tensor/api.py. The classes moved and their
// attributes changed from PyTorch 2.2 to 2.11; all forms are read.
#ifndef DCP_FORMAT_TORCH_RANK_TENSOR_H_
#define DCP_FORMAT_TORCH_RANK_TENSOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

struct RankTensor {
  struct Piece {
    Box box;       // in the whole tensor
    Value tensor;  // this rank's own tensor, which ParseTensor accepts
    Dims offsets;  // where the box begins in that tensor
  };
  DType dtype = DType::kFloat32;
  Dims shape;                 // the whole tensor's shape
  std::vector<Piece> pieces;  // empty if this rank holds no elements
  // The mesh as "dp=2,tp=4", and the tensor's placements on it, as "S(0),R";
  // empty for a ShardedTensor.
  std::string mesh;
  std::string placements;
  // For a ShardedTensor, the number of ranks that saved it, and this rank.
  std::optional<int64_t> world_size;
  std::optional<int64_t> rank;
};

// Whether `value` is a DTensor or a ShardedTensor, valid or not, perhaps inside
// a Parameter.
bool IsRankTensor(const Value& value);

// DataLoss if it is malformed, Unimplemented for Partial placements and for a
// rank's own tensor that is sharded itself.
absl::StatusOr<RankTensor> ParseRankTensor(const Value& value);

}  // namespace dcp

#endif  // DCP_FORMAT_TORCH_RANK_TENSOR_H_
