// SPDX-License-Identifier: Apache-2.0
// StridedPiece: what one tensor contributes to another when an equation between
// shapes rearranges it: a box of loops, each of which walks along one dimension
// of the source and one of the destination. Also which part of it lies in a box
// of either tensor. Pure; any thread.
//
// Pieces are not related to FilePiece, the pieces of files that workers share.
#ifndef DCP_PLAN_STRIDED_STRIDED_PIECE_H_
#define DCP_PLAN_STRIDED_STRIDED_PIECE_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/tensor/box.h"

namespace dcp {

// Loops of one piece. A rule of a mapping has up to 16 axes, but those that
// continue each other on both sides are one loop.
inline constexpr size_t kMaxStridedLoops = 8;

// `count` steps, which advance the index in dimension src_dim of the source by
// src_step each, and that in dst_dim of the destination by dst_step.
struct StridedLoop {
  uint64_t count = 1;
  int src_dim = -1;  // -1: stays where it is, so that elements are repeated
  uint64_t src_step = 0;
  int dst_dim = 0;
  uint64_t dst_step = 1;

  friend bool operator==(const StridedLoop&, const StridedLoop&) = default;
};

// Element dst_base + sum of i_j * dst_step_j of the destination, for all
// 0 <= i_j < count_j, is element src_base + sum of i_j * src_step_j of the
// source. A loop of no steps makes the piece empty; a piece without loops is
// one element.
//
// On either side, the loops of a dimension that take more than one step are
// digits of a number: sorted by step, each step is larger than the sum of
// (count - 1) * step of those with smaller steps. Hence no element of the
// destination occurs twice. CheckStridedPiece verifies this.
struct StridedPiece {
  // The number of a source without memory, all of whose elements are zero.
  static constexpr uint32_t kZeros = std::numeric_limits<uint32_t>::max();

  uint32_t src = 0;  // the number of the source tensor, or kZeros
  uint32_t dst = 0;  // the number of the destination tensor
  // Indices, one for each dimension of the tensor; src_base is empty for
  // kZeros, whose loops have no src_dim.
  absl::InlinedVector<uint64_t, 4> src_base;
  absl::InlinedVector<uint64_t, 4> dst_base;
  absl::InlinedVector<StridedLoop, 6> loops;  // at most kMaxStridedLoops

  friend bool operator==(const StridedPiece&, const StridedPiece&) = default;
};

// The piece that makes all of tensor `dst` from tensor `src` of the same shape.
StridedPiece WholePiece(uint32_t src, uint32_t dst,
                        absl::Span<const int64_t> shape);

enum class PieceSide : uint8_t { kSrc, kDst };

// OK if the piece is as described above and stays inside its tensors. Otherwise
// InvalidArgument, which names the loop or dimension at fault. `src_shape` is
// ignored for zeros. All functions below, and those of nest_run.h, take only
// pieces that have passed this check.
absl::Status CheckStridedPiece(const StridedPiece& piece,
                               absl::Span<const int64_t> src_shape,
                               absl::Span<const int64_t> dst_shape);

// How many elements of the destination the piece makes.
uint64_t NumElements(const StridedPiece& piece);

// The smallest box of that side's tensor that holds all elements of the piece,
// which is not empty.
Box BoundsOf(const StridedPiece& piece, PieceSide side);

// Calls `visit` with pieces that together are the elements of `piece` that lie
// in `box` of that side's tensor. There are at most as many as the product,
// over the dimensions of that side, of 2k - 1, where k loops walk along the
// dimension.
void Clip(const StridedPiece& piece, PieceSide side, const Box& box,
          absl::FunctionRef<void(const StridedPiece& part)> visit);

// Calls `visit` with pieces that together are the elements of `piece`, each of
// which has at least a quarter of the elements of its bounds on the side kSrc.
// For sources of many chunks: whoever looks for the chunks of such bounds meets
// few in vain.
void ForEachDensePart(const StridedPiece& piece,
                      absl::FunctionRef<void(const StridedPiece& part)> visit);

}  // namespace dcp

#endif  // DCP_PLAN_STRIDED_STRIDED_PIECE_H_
