// SPDX-License-Identifier: Apache-2.0
// Attention where the sequences of queries and keys are cut, without gathering
// the keys: by ring attention, or by an all-to-all that gives each rank some
// heads of the whole sequence (Ulysses). The axis says which one. For the
// thread that trains, and autograd's when it recomputes a forward.
#ifndef FSDP_PARALLEL_SPMD_RULES_SEQUENCE_ATTENTION_H_
#define FSDP_PARALLEL_SPMD_RULES_SEQUENCE_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/parallel/context/ring_attention.h"
#include "fsdp/parallel/spmd/call.h"
#include "fsdp/parallel/spmd/layout.h"

namespace fsdp::spmd {

// Arguments of scaled_dot_product_attention.
inline constexpr size_t kAttentionMask = 3;
inline constexpr size_t kAttentionDropout = 4;
inline constexpr size_t kAttentionIsCausal = 5;

// Whether a sequence is cut on an axis that does not gather keys and values.
// Keys and values that every rank has whole do not count.
bool CutsSequence(const Call& call, const Operand& q, const Operand& k,
                  const Operand& v);

// The attention. Throws c10::ValueError, on every rank and before any
// collective, for arguments that the axis's way does not take.
Values AttendOverSequence(Call& call);

// How queries in `q_pieces` use the keys in `k_pieces` under a causal mask, if
// the two have no position in common: few tiles, in order. Pieces are in
// ascending order.
std::vector<RingTile> CausalTiles(const std::vector<Piece>& q_pieces,
                                  const std::vector<Piece>& k_pieces);

// From attention.cc. A mask's part, broadcast to [.., L, S], for attention with
// `ndim` dimensions that is cut as `layout`.
at::Tensor MaskFor(const Operand& mask, const Layout& layout, int64_t ndim);
// Keys or values for queries with heads or batch cut as `layout`.
at::Tensor ForOwnHeads(const Axis& axis, const Operand& keys, const Operand& q,
                       const Layout& layout);

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_RULES_SEQUENCE_ATTENTION_H_
