// SPDX-License-Identifier: Apache-2.0
// How a tensor lies along one mesh axis: Shard, Replicate, Partial, and the
// strided shard that FSDP over tensor parallelism makes. Names and meaning are
// DTensor's (torch/distributed/tensor/placement_types.py). The geometry itself
// is dcp's (dcp/tensor/placement.h), so that a checkpoint and the trainer that
// wrote it cannot disagree. Pure values; any thread.
#ifndef FSDP_MESH_PLACEMENT_H_
#define FSDP_MESH_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "c10/util/ArrayRef.h"
#include "dcp/tensor/placement.h"

namespace fsdp {

// How the ranks' contributions add up to a Partial tensor's value.
enum class ReduceOp : uint8_t { kSum, kAvg, kMax, kMin };

class Placement {
 public:
  enum class Kind : uint8_t { kReplicate, kShard, kStridedShard, kPartial };

  Kind kind() const { return kind_; }
  bool is_shard() const {
    return kind_ == Kind::kShard || kind_ == Kind::kStridedShard;
  }
  bool is_shard(int64_t dim) const { return is_shard() && dim_ == dim; }
  bool is_replicate() const { return kind_ == Kind::kReplicate; }
  bool is_partial() const { return kind_ == Kind::kPartial; }

  // For a shard: the tensor dimension. A negative one counts from the end,
  // until `normalized`.
  int64_t dim() const { return dim_; }
  // For a strided shard: into how many parts an axis to the right first cut the
  // dimension; 1 otherwise.
  int64_t split_factor() const { return split_factor_; }
  // For a Partial.
  ReduceOp reduce_op() const { return reduce_op_; }

  // Makes a negative dim positive for a tensor with `ndim` dimensions. Throws
  // c10::IndexError when there is no such dimension.
  Placement normalized(int64_t ndim) const;

  friend bool operator==(const Placement&, const Placement&) = default;

 protected:
  Placement(Kind kind, int64_t dim, int64_t split_factor, ReduceOp op)
      : kind_(kind), dim_(dim), split_factor_(split_factor), reduce_op_(op) {}

 private:
  Kind kind_;
  int64_t dim_;
  int64_t split_factor_;
  ReduceOp reduce_op_;
};

// The forms that users write: Shard(0), Replicate(), Partial(). They add no
// members to Placement, so slicing them is harmless.
struct Shard : Placement {
  explicit Shard(int64_t dim)
      : Placement(Kind::kShard, dim, 1, ReduceOp::kSum) {}
};
struct StridedShard : Placement {
  StridedShard(int64_t dim, int64_t split_factor)
      : Placement(Kind::kStridedShard, dim, split_factor, ReduceOp::kSum) {}
};
struct Replicate : Placement {
  Replicate() : Placement(Kind::kReplicate, 0, 1, ReduceOp::kSum) {}
};
struct Partial : Placement {
  explicit Partial(ReduceOp op = ReduceOp::kSum)
      : Placement(Kind::kPartial, 0, 1, op) {}
};

using Placements = std::vector<Placement>;

// "(Shard(dim=0), Replicate())", as PyTorch prints it.
std::string to_string(const Placement& placement);
std::string to_string(c10::ArrayRef<Placement> placements);

// The placements for dcp's geometry. Throws c10::ValueError for a Partial,
// which has no geometry.
dcp::Placements to_dcp(c10::ArrayRef<Placement> placements);

}  // namespace fsdp

#endif  // FSDP_MESH_PLACEMENT_H_
