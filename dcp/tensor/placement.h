// SPDX-License-Identifier: Apache-2.0
// How a tensor is distributed over a mesh of ranks: one Placement per mesh
// axis, and the boxes that a rank therefore holds. The mathematics is DTensor's
// (torch/distributed/tensor/_utils.py, placement_types.py): shards are cut as
// torch.chunk cuts, and placements apply from left to right. Pure; any thread.
#ifndef DCP_TENSOR_PLACEMENT_H_
#define DCP_TENSOR_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/tensor/box.h"

namespace dcp {

// Ranks in an n-dimensional grid, row-major: the last axis varies fastest.
struct Mesh {
  struct Axis {
    std::string name;
    int64_t size;
  };
  std::vector<Axis> axes;

  int64_t num_ranks() const;
  // A rank's coordinate on every axis.
  Dims Coordinate(int64_t rank) const;
};

// "shard=4", "replicate=2,shard=3", "dp=2,tp=2". Sizes are at least 1; names
// are distinct words; there are at most 2^20 ranks in all.
absl::StatusOr<Mesh> ParseMesh(absl::string_view spec);
std::string ToString(const Mesh& mesh);

struct Placement {
  enum class Kind : uint8_t { kReplicate, kShard, kStridedShard };
  Kind kind = Kind::kReplicate;
  int64_t dim = 0;           // for kShard and kStridedShard; not negative
  int64_t split_factor = 1;  // for kStridedShard; at least 1

  friend bool operator==(const Placement&, const Placement&) = default;
};

using Placements = absl::InlinedVector<Placement, 4>;

// "S(0),R", "R", "SS(0,2),S(0)": Shard(dim), Replicate, StridedShard(dim,
// split_factor). A negative dim, which counts from the end, is refused because
// the tensor is not known here.
absl::StatusOr<Placements> ParsePlacements(absl::string_view spec);
std::string ToString(absl::Span<const Placement> placements);

// The default for a tensor without placements: Replicate on an axis with "rep"
// in its name, else Shard(0); Replicate everywhere for a 0-d tensor.
Placements DefaultPlacements(const Mesh& mesh, absl::Span<const int64_t> shape);

// The parts of a tensor with `shape` that the rank at `coordinate` holds:
// almost always one box; several when uneven strided sharding leaves indices
// that are not contiguous; one empty box, at the dimension's end, when the rank
// holds no elements. InvalidArgument when a placement names a dimension that
// the tensor does not have, when the numbers of placements and axes differ, or
// when strided shards leave more than kMaxBoxesPerRank boxes.
absl::StatusOr<std::vector<Box>> LocalBoxes(
    absl::Span<const int64_t> shape, const Mesh& mesh,
    absl::Span<const Placement> placements,
    absl::Span<const int64_t> coordinate);

}  // namespace dcp

#endif  // DCP_TENSOR_PLACEMENT_H_
