// SPDX-License-Identifier: Apache-2.0
// Compose: one strided piece after another. Where the first makes elements that
// the second takes, the result says which elements of the first's source they
// are. Pure; any thread.
#ifndef DCP_PLAN_STRIDED_COMPOSITION_H_
#define DCP_PLAN_STRIDED_COMPOSITION_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "dcp/plan/strided/strided_piece.h"

namespace dcp {

// Calls `visit` with pieces from the source of `first` to the other side of
// `second`, whose side `side` is a tensor that `first` makes. Together they
// have one step for each pair of steps of the two that meet at an element of
// that tensor. With kDst, where both pieces make the same elements, a result
// may have loops whose dst_dim is -1, and its `dst` is second.src.
//
// Digits that divide each other, as those of shapes do, give few pieces. Others
// are split into single steps, so `max_steps`, which is counted down, bounds
// the work; the result is false if it did not suffice.
bool Compose(const StridedPiece& first, const StridedPiece& second,
             PieceSide side, uint64_t& max_steps,
             absl::FunctionRef<void(const StridedPiece& piece)> visit);

}  // namespace dcp

#endif  // DCP_PLAN_STRIDED_COMPOSITION_H_
