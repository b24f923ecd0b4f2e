// SPDX-License-Identifier: Apache-2.0
// The pieces of tensors that are computed, as their stored values have them: in
// another order of dimensions, or two elements in a byte. For
// window_planner.cc; pure; any thread.
#ifndef DCP_CHECKPOINT_LENS_LENS_PIECES_H_
#define DCP_CHECKPOINT_LENS_LENS_PIECES_H_

#include "absl/functional/function_ref.h"
#include "dcp/plan/strided/strided_piece.h"

namespace dcp {

// The piece of a source whose last two dimensions are in the other order.
StridedPiece WithLastTwoSwapped(StridedPiece piece);

// Calls `visit` with pieces of the bytes of which each holds two elements that
// are adjacent in the last dimension of the source. A loop that walks along it
// in odd steps meets low and high halves in turn.
void ForEachHalf(
    const StridedPiece& piece,
    absl::FunctionRef<void(const StridedPiece& half, bool is_high)> visit);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LENS_LENS_PIECES_H_
