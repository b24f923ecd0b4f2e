// SPDX-License-Identifier: Apache-2.0
// MappedTensor: a tensor that no file holds, because strided pieces of stored
// tensors make it: several that are fused, a transposed one, a padded one. The
// entry stands where a stored tensor's does, and everything that moves elements
// (window_planner.h) takes both. Immutable; any thread.
#ifndef DCP_CHECKPOINT_MAPPED_MAPPED_TENSOR_H_
#define DCP_CHECKPOINT_MAPPED_MAPPED_TENSOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/plan/chunk_index.h"
#include "dcp/plan/strided/strided_piece.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

class MappedTensor {
 public:
  // The pieces that make a tensor with `shape`; their `src` indexes `sources`,
  // and `dst` is ignored. Only the sources in use are kept. They are stored
  // tensors with type `dtype`. They must outlive this, and be located before
  // elements move.
  //
  // InvalidArgument when a piece does not fit the tensors, or when the pieces
  // do not make as many elements as there are. The caller ensures that no two
  // pieces make the same element, so that each is made once.
  static absl::StatusOr<std::unique_ptr<const MappedTensor>> Make(
      DType dtype, const Dims& shape, std::vector<StridedPiece> pieces,
      absl::Span<const TensorEntry* const> sources);

  MappedTensor(const MappedTensor&) = delete;
  MappedTensor& operator=(const MappedTensor&) = delete;

  // Has type and shape, but neither boxes nor locations. Valid as long as this.
  const TensorEntry& entry() const { return entry_; }

  // None is empty; their `src` indexes sources().
  absl::Span<const StridedPiece> pieces() const { return pieces_; }
  // The stored tensors that this is made from, each once.
  absl::Span<const TensorEntry* const> sources() const { return sources_; }
  // The stored tensor that a piece takes elements from; null for zeros.
  const TensorEntry* PieceSource(const StridedPiece& piece) const {
    return piece.src == StridedPiece::kZeros ? nullptr : sources_[piece.src];
  }

  // Calls `visit` with every piece that may have elements in `box`: the piece's
  // bounds overlap it.
  void ForEachPieceNear(
      const Box& box,
      absl::FunctionRef<void(const StridedPiece& piece)> visit) const {
    index_.ForEachOverlap(box,
                          [&](size_t i, const Box&) { visit(pieces_[i]); });
  }

 private:
  MappedTensor(DType dtype, const Dims& shape, std::vector<StridedPiece> pieces,
               std::vector<Box> bounds,
               std::vector<const TensorEntry*> sources);

  TensorEntry entry_;
  const std::vector<StridedPiece> pieces_;
  const std::vector<Box> bounds_;  // the pieces' bounds in the destination
  const std::vector<const TensorEntry*> sources_;
  const ChunkIndex index_;  // over bounds_
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_MAPPED_MAPPED_TENSOR_H_
