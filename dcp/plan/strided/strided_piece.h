// SPDX-License-Identifier: Apache-2.0
// StridedPiece: one tensor's contribution to another when an equation between
// shapes rearranges it: a box of loops, each of which walks along one source
// dimension and one destination dimension. Also finds a piece's part in a box
// on either side. Pure; any thread.
//
// Pieces are not related to FilePiece, the file pieces that workers share.
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

// Loops in one piece. A mapping's rule has up to 16 axes, but axes that
// continue each other on both sides are one loop.
inline constexpr size_t kMaxStridedLoops = 8;

// `count` steps, which advance the source index in dimension src_dim by
// src_step each, and the destination index in dst_dim by dst_step.
struct StridedLoop {
  uint64_t count = 1;
  int src_dim = -1;  // -1: stays where it is, so that elements are repeated
  uint64_t src_step = 0;
  int dst_dim = 0;
  uint64_t dst_step = 1;

  friend bool operator==(const StridedLoop&, const StridedLoop&) = default;
};

// Element dst_base + sum of i_j * dst_step_j of the destination, for all 0 <=
// i_j < count_j, is element src_base + sum of i_j * src_step_j of the source. A
// loop without steps makes the piece empty; a piece without loops is one
// element.
//
// On either side, a dimension's loops that take more than one step are digits
// of a number: sorted by step, each step is larger than the sum of (count - 1)
// * step over the loops with smaller steps. Hence no destination element occurs
// twice. CheckStridedPiece verifies this.
struct StridedPiece {
  // The number for a source without memory, where all elements are zero.
  static constexpr uint32_t kZeros = std::numeric_limits<uint32_t>::max();

  uint32_t src = 0;  // the source tensor's number, or kZeros
  uint32_t dst = 0;  // the destination tensor's number
  // Indices, one for each tensor dimension; src_base is empty for kZeros. Loops
  // have no src_dim then.
  absl::InlinedVector<uint64_t, 4> src_base;
  absl::InlinedVector<uint64_t, 4> dst_base;
  absl::InlinedVector<StridedLoop, 6> loops;  // at most kMaxStridedLoops

  friend bool operator==(const StridedPiece&, const StridedPiece&) = default;
};

// The piece that makes all of tensor `dst` from tensor `src` with the same
// shape.
StridedPiece WholePiece(uint32_t src, uint32_t dst,
                        absl::Span<const int64_t> shape);

enum class PieceSide : uint8_t { kSrc, kDst };

// OK if the piece is as described above and stays inside the tensors. Otherwise
// InvalidArgument, which names the loop or dimension at fault. `src_shape` is
// ignored for zeros. All functions below, and those of nest_run.h, take only
// pieces that have passed this check.
absl::Status CheckStridedPiece(const StridedPiece& piece,
                               absl::Span<const int64_t> src_shape,
                               absl::Span<const int64_t> dst_shape);

// The number of destination elements that the piece makes.
uint64_t NumElements(const StridedPiece& piece);

// The smallest box in that side's tensor that holds all the piece's elements.
// The piece is not empty.
Box FindBounds(const StridedPiece& piece, PieceSide side);

// Calls `visit` with pieces that together are the piece's elements inside
// `box`, in that side's tensor. There are at most as many as the product, over
// that side's dimensions, of 2k - 1, where k loops walk along the dimension.
void Clip(const StridedPiece& piece, PieceSide side, const Box& box,
          absl::FunctionRef<void(const StridedPiece& part)> visit);

// Calls `visit` with pieces that together are the piece's elements. Each has at
// least a quarter of the elements in its bounds on the side kSrc. For sources
// with many chunks: a search for the chunks in such bounds meets few in vain.
void ForEachDensePart(const StridedPiece& piece,
                      absl::FunctionRef<void(const StridedPiece& part)> visit);

}  // namespace dcp

#endif  // DCP_PLAN_STRIDED_STRIDED_PIECE_H_
