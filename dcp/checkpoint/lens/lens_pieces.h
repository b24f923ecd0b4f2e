// SPDX-License-Identifier: Apache-2.0
// The pieces of computed tensors in the layout of their stored values: with
// dimensions in another order, or two elements in a byte. For
// window_planner.cc; pure; any thread.
#ifndef DCP_CHECKPOINT_LENS_LENS_PIECES_H_
#define DCP_CHECKPOINT_LENS_LENS_PIECES_H_

#include "absl/functional/function_ref.h"
#include "dcp/plan/strided/strided_piece.h"

namespace dcp {

// The piece for a source that has the last two dimensions in the other order.
StridedPiece WithLastTwoSwapped(StridedPiece piece);

// Calls `visit` with pieces of bytes that hold two elements each; the two are
// adjacent in the source's last dimension. A loop along this dimension in odd
// steps meets low and high halves in turn.
void ForEachHalf(
    const StridedPiece& piece,
    absl::FunctionRef<void(const StridedPiece& half, bool is_high)> visit);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LENS_LENS_PIECES_H_
