// SPDX-License-Identifier: Apache-2.0
// [Note: order of steps]
// Placements apply from left to right. Where several axes cut a tensor
// dimension, each axis cuts the piece that the axes to the left have left over.
// So a shard can be undone only while no axis to the right cuts the same
// dimension. A shard can be made only when all axes to the left that will cut
// the dimension have done so, and none to the right has. Each round takes the
// leftmost axis that reaches its target in one step. Where all are blocked, the
// rightmost shard in the way is gathered, and cut again locally in a later
// round. A step towards a target never blocks an axis to the left, so this
// ends.

#include "fsdp/mesh/redistribute.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "c10/util/Exception.h"
#include "dcp/tensor/placement.h"
#include "fsdp/mesh/mesh_collectives.h"

namespace fsdp {
namespace {

// Copies a rank's padded block back to the places in `whole`.
void UnpackBlock(const at::Tensor& block, int64_t dim,
                 const std::vector<AxisCut::Piece>& pieces,
                 const at::Tensor& whole) {
  int64_t position = 0;
  for (const AxisCut::Piece& piece : pieces) {
    whole.narrow(dim, piece.begin, piece.length)
        .movedim(dim, 0)
        .copy_(block.narrow(0, position, piece.length));
    position += piece.length;
  }
}

// `tensor` with `dim` first, padded with zeros to `length`.
at::Tensor PaddedFront(const at::Tensor& tensor, int64_t dim, int64_t length) {
  const at::Tensor front = tensor.movedim(dim, 0);
  if (front.size(0) == length) return front.contiguous();
  std::vector<int64_t> sizes = front.sizes().vec();
  sizes[0] = length;
  at::Tensor padded = front.new_zeros(sizes);
  padded.narrow(0, 0, front.size(0)).copy_(front);
  return padded;
}

class Redistribution {
 public:
  Redistribution(at::Tensor local, const DTensorSpec& from,
                 const Placements& to, std::vector<int64_t> coordinate)
      : local_(std::move(local)),
        mesh_(from.mesh),
        shape_(from.shape),
        current_(from.placements),
        target_(to),
        coordinate_(std::move(coordinate)) {}

  at::Tensor Run() {
    while (current_ != target_) {
      if (!StepOnce()) Gather(InTheWay());
    }
    return local_;
  }

 private:
  int64_t ndim() const { return static_cast<int64_t>(current_.size()); }

  // Takes the leftmost axis that reaches its target in one step; false when
  // there is none. See [Note: order of steps].
  bool StepOnce() {
    for (int64_t axis = 0; axis < ndim(); ++axis) {
      const Placement& now = current_[axis];
      const Placement& target = target_[axis];
      if (now == target) continue;
      if (now.is_shard() && !IsLastOn(now.dim(), axis)) continue;
      if (target.is_replicate()) {
        now.is_shard() ? Gather(axis) : Reduce(axis);
        return true;
      }
      if (now.is_shard(target.dim())) {  // another split factor
        Gather(axis);
        return true;
      }
      if (!IsNextOn(target.dim(), axis)) continue;
      if (now.is_shard()) {
        Exchange(axis);
      } else if (now.is_partial()) {
        ReduceToShard(axis);
      } else {
        Cut(axis);
      }
      return true;
    }
    return false;
  }

  bool IsLastOn(int64_t dim, int64_t axis) const {
    return std::none_of(current_.begin() + axis + 1, current_.end(),
                        [dim](const Placement& p) { return p.is_shard(dim); });
  }

  // Whether the axes to the left cut `dim` as in the target, and no axis to the
  // right cuts it.
  bool IsNextOn(int64_t dim, int64_t axis) const {
    for (int64_t left = 0; left < axis; ++left) {
      const bool cuts = current_[left].is_shard(dim);
      if (cuts != target_[left].is_shard(dim)) return false;
      if (cuts && current_[left] != target_[left]) return false;
    }
    return IsLastOn(dim, axis);
  }

  // The rightmost shard that blocks an axis to the left.
  int64_t InTheWay() const {
    for (int64_t axis = ndim() - 1; axis > 0; --axis) {
      if (!current_[axis].is_shard()) continue;
      const int64_t dim = current_[axis].dim();
      for (int64_t left = 0; left < axis; ++left) {
        if (current_[left] == target_[left]) continue;
        if (current_[left].is_shard(dim) || target_[left].is_shard(dim)) {
          return axis;
        }
      }
    }
    TORCH_INTERNAL_ASSERT(false, "no step leads from ", to_string(current_),
                          " to ", to_string(target_));
  }

  // How `shard` on `axis` cuts the piece that the axes to the left have left
  // over.
  AxisCut CutAt(int64_t axis, const Placement& shard) const {
    int64_t length = shape_[shard.dim()];
    for (int64_t left = 0; left < axis; ++left) {
      if (!current_[left].is_shard(shard.dim())) continue;
      length = MakeAxisCut(length, current_[left], mesh_.size(left))
                   .lengths[coordinate_[left]];
    }
    return MakeAxisCut(length, shard, mesh_.size(axis));
  }

  void Gather(int64_t axis) {
    const int64_t dim = current_[axis].dim();
    const AxisCut cut = CutAt(axis, current_[axis]);
    const at::Tensor blocks = AllGather(
        PaddedFront(local_, dim, cut.max_length), mesh_.get_group(axis));
    std::vector<int64_t> sizes = local_.sizes().vec();
    sizes[dim] = cut.length;
    local_ = local_.new_empty(sizes);
    for (int64_t i = 0; i < mesh_.size(axis); ++i) {
      UnpackBlock(blocks[i], dim, cut.pieces[i], local_);
    }
    current_[axis] = Replicate();
  }

  void Reduce(int64_t axis) {
    at::Tensor sum = local_.clone(at::MemoryFormat::Contiguous);
    AllReduce(sum, current_[axis].reduce_op(), mesh_.get_group(axis));
    local_ = sum;
    current_[axis] = Replicate();
  }

  void Cut(int64_t axis) {
    const Placement& shard = target_[axis];
    local_ =
        TakePieces(local_, shard.dim(), CutAt(axis, shard), coordinate_[axis]);
    current_[axis] = shard;
  }

  void ReduceToShard(int64_t axis) {
    const Placement& shard = target_[axis];
    const AxisCut cut = CutAt(axis, shard);
    const at::Tensor block =
        ReduceScatter(PackBlocks(local_, shard.dim(), cut),
                      current_[axis].reduce_op(), mesh_.get_group(axis));
    local_ = block.narrow(0, 0, cut.lengths[coordinate_[axis]])
                 .movedim(0, shard.dim())
                 .clone(at::MemoryFormat::Contiguous);
    current_[axis] = shard;
  }

  // Changes a shard along one dimension to a shard along another: each rank
  // sends every other rank the part that it will hold.
  void Exchange(int64_t axis) {
    const int64_t src_dim = current_[axis].dim();
    const int64_t dst_dim = target_[axis].dim();
    const AxisCut src_cut = CutAt(axis, current_[axis]);
    const AxisCut dst_cut = CutAt(axis, target_[axis]);
    // Both dimensions are padded, the one that is left behind first.
    const at::Tensor padded =
        PaddedFront(local_, src_dim, src_cut.max_length).movedim(0, src_dim);
    const at::Tensor blocks =
        AllToAll(PackBlocks(padded, dst_dim, dst_cut), mesh_.get_group(axis));
    std::vector<int64_t> sizes = local_.sizes().vec();
    sizes[src_dim] = src_cut.length;
    sizes[dst_dim] = dst_cut.lengths[coordinate_[axis]];
    local_ = local_.new_empty(sizes);
    for (int64_t i = 0; i < mesh_.size(axis); ++i) {
      const at::Tensor block =
          blocks[i].narrow(0, 0, sizes[dst_dim]).movedim(0, dst_dim);
      UnpackBlock(block.movedim(src_dim, 0), src_dim, src_cut.pieces[i],
                  local_);
    }
    current_[axis] = target_[axis];
  }

  at::Tensor local_;
  const DeviceMesh& mesh_;
  const std::vector<int64_t>& shape_;
  Placements current_;
  const Placements& target_;
  std::vector<int64_t> coordinate_;
};

void CheckPartials(const DTensorSpec& from, const Placements& to) {
  std::optional<ReduceOp> seen;
  for (size_t axis = 0; axis < to.size(); ++axis) {
    const Placement& now = from.placements[axis];
    TORCH_CHECK(!to[axis].is_partial() || to[axis] == now, "redistribute from ",
                to_string(from.placements), " to ", to_string(to),
                ": a tensor cannot become Partial on axis ", axis,
                "; make it from local values with DTensor::from_local");
    if (!now.is_partial()) continue;
    const ReduceOp op =
        now.reduce_op() == ReduceOp::kAvg ? ReduceOp::kSum : now.reduce_op();
    TORCH_CHECK_NOT_IMPLEMENTED(
        seen.value_or(op) == op, "redistribute from ",
        to_string(from.placements),
        ": these reductions depend on their order; reduce one axis at a time");
    seen = op;
  }
}

}  // namespace

AxisCut MakeAxisCut(int64_t length, const Placement& shard, int64_t num_ranks) {
  const dcp::Mesh mesh{.axes = {{.name = "axis", .size = num_ranks}}};
  const bool strided = shard.kind() == Placement::Kind::kStridedShard;
  const dcp::Placements placements = {
      {.kind = strided ? dcp::Placement::Kind::kStridedShard
                       : dcp::Placement::Kind::kShard,
       .dim = 0,
       .split_factor = shard.split_factor()}};
  AxisCut cut{.length = length, .max_length = 0, .lengths = {}, .pieces = {}};
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const auto boxes = dcp::LocalBoxes({length}, mesh, placements, {rank});
    TORCH_CHECK_VALUE(boxes.ok(), boxes.status().ToString());
    std::vector<AxisCut::Piece> pieces;
    int64_t held = 0;
    for (const dcp::Box& box : *boxes) {
      if (box.sizes[0] == 0) continue;
      pieces.push_back({.begin = box.offsets[0], .length = box.sizes[0]});
      held += box.sizes[0];
    }
    cut.max_length = std::max(cut.max_length, held);
    cut.lengths.push_back(held);
    cut.pieces.push_back(std::move(pieces));
  }
  return cut;
}

at::Tensor TakePieces(const at::Tensor& tensor, int64_t dim, const AxisCut& cut,
                      int64_t index) {
  std::vector<at::Tensor> parts;
  for (const AxisCut::Piece& piece : cut.pieces[index]) {
    parts.push_back(tensor.narrow(dim, piece.begin, piece.length));
  }
  if (parts.empty()) parts.push_back(tensor.narrow(dim, 0, 0));
  if (parts.size() == 1) return parts[0].clone(at::MemoryFormat::Contiguous);
  return at::cat(parts, dim).contiguous();
}

at::Tensor PackBlocks(const at::Tensor& tensor, int64_t dim,
                      const AxisCut& cut) {
  const at::Tensor front = tensor.movedim(dim, 0);
  std::vector<int64_t> sizes = front.sizes().vec();
  sizes[0] = cut.max_length;
  sizes.insert(sizes.begin(), static_cast<int64_t>(cut.pieces.size()));
  at::Tensor blocks = front.new_zeros(sizes);
  for (size_t rank = 0; rank < cut.pieces.size(); ++rank) {
    int64_t position = 0;
    for (const AxisCut::Piece& piece : cut.pieces[rank]) {
      blocks[static_cast<int64_t>(rank)]
          .narrow(0, position, piece.length)
          .copy_(front.narrow(0, piece.begin, piece.length));
      position += piece.length;
    }
  }
  return blocks;
}

at::Tensor Redistribute(const at::Tensor& local, const DTensorSpec& from,
                        const Placements& to) {
  CheckPartials(from, to);
  if (from.placements == to) return local;
  const std::optional<std::vector<int64_t>> coordinate =
      from.mesh.get_coordinate();
  if (!coordinate.has_value()) return local;  // outside the mesh: nothing
  const at::NoGradGuard no_grad;
  return Redistribution(local.detach(), from, to, *coordinate).Run();
}

}  // namespace fsdp
