// How a tensor lies on a mesh of ranks: one Placement per mesh axis, and the
// boxes that a rank therefore holds. The mathematics is DTensor's
// (torch/distributed/tensor/_utils.py, placement_types.py): shards are cut as
// torch.chunk cuts, placements apply from left to right. Pure; any thread.
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
  // The coordinate of a rank on every axis.
  Dims Coordinate(int64_t rank) const;
};

// "shard=4", "replicate=2,shard=3", "dp=2,tp=2". Sizes are 1 or more; names
// are distinct words; at most 2^20 ranks in all.
absl::StatusOr<Mesh> ParseMesh(absl::string_view spec);
std::string ToString(const Mesh& mesh);

struct Placement {
  enum class Kind : uint8_t { kReplicate, kShard, kStridedShard };
  Kind kind = Kind::kReplicate;
  int64_t dim = 0;           // of kShard and kStridedShard; not negative
  int64_t split_factor = 1;  // of kStridedShard; 1 or more

  friend bool operator==(const Placement&, const Placement&) = default;
};

using Placements = absl::InlinedVector<Placement, 4>;

// "S(0),R", "R", "SS(0,2),S(0)": Shard(dim), Replicate, StridedShard(dim,
// split_factor); a negative dim counts from the end only once the tensor is
// known and is refused here.
absl::StatusOr<Placements> ParsePlacements(absl::string_view spec);
std::string ToString(absl::Span<const Placement> placements);

// What a tensor gets when nobody said: Replicate on an axis whose name
// contains "rep", else Shard(0); Replicate everywhere for a 0-d tensor.
Placements DefaultPlacements(const Mesh& mesh, absl::Span<const int64_t> shape);

// The parts of a tensor of `shape` that the rank at `coordinate` holds:
// almost always one box; several when uneven strided sharding leaves indices
// that are not contiguous; one box of zero volume, at the dimension's end,
// when the rank holds nothing. InvalidArgument when a placement names a
// dimension that the tensor lacks, there are not as many placements as axes,
// or strided shards leave more than kMaxBoxesPerRank boxes.
absl::StatusOr<std::vector<Box>> LocalBoxes(
    absl::Span<const int64_t> shape, const Mesh& mesh,
    absl::Span<const Placement> placements,
    absl::Span<const int64_t> coordinate);

}  // namespace dcp

#endif  // DCP_TENSOR_PLACEMENT_H_
