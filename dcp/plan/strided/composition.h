// SPDX-License-Identifier: Apache-2.0
// Compose: one strided piece after another. For elements that the first makes
// and the second takes, the result gives their place in the first's source.
// Pure; any thread.
#ifndef DCP_PLAN_STRIDED_COMPOSITION_H_
#define DCP_PLAN_STRIDED_COMPOSITION_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "dcp/plan/strided/strided_piece.h"

namespace dcp {

// Calls `visit` with pieces from `first`'s source to the other side of
// `second`. The side `side` of `second` is a tensor that `first` makes.
// Together the pieces have one step for each pair of steps that meet at an
// element in that tensor. With kDst, where both pieces make the same elements,
// a result may have loops with a dst_dim of -1, and its `dst` is second.src.
//
// Digits that divide each other, as those of shapes do, give few pieces. Others
// are split into single steps, so `max_steps`, which is counted down, bounds
// the work; the result is false if it did not suffice.
bool Compose(const StridedPiece& first, const StridedPiece& second,
             PieceSide side, uint64_t& max_steps,
             absl::FunctionRef<void(const StridedPiece& piece)> visit);

}  // namespace dcp

#endif  // DCP_PLAN_STRIDED_COMPOSITION_H_
