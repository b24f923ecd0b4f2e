// SPDX-License-Identifier: Apache-2.0
// scaled_dot_product_attention: q [.., heads, L, E], k and v [.., heads, S, E].
//
//   heads or batch cut   each rank attends with the heads that it has; if keys
//                        have fewer heads than queries, with those that the
//                        queries use
//   sequence of q cut    keys and values are gathered; each rank has some
//                        queries, and uses the mask's rows for them. By
//                        context_parallel's other methods: see
//                        sequence_attention.h
//
// Tested by tests/fsdp/parallel/spmd/rules/layers_test.cc.

#include <utility>

#include "ATen/ops/arange.h"
#include "fsdp/parallel/spmd/moves.h"
#include "fsdp/parallel/spmd/rules/rules.h"
#include "fsdp/parallel/spmd/rules/sequence_attention.h"

namespace fsdp::spmd {
namespace {

// This rank's indices along the cut dimension, which has `length`.
at::Tensor OwnIndices(const Axis& axis, const Layout& layout, int64_t length,
                      at::Device device) {
  const at::Tensor all =
      at::arange(length, at::TensorOptions().dtype(at::kLong).device(device));
  return Cut(all, layout.At(0), axis);
}
// Whether k and v have as many heads (or batches) as q, or are shared by them.
bool Matches(const Call& call, const Operand& q, const Operand& k,
             int64_t dim) {
  if (k.size(dim) == q.size(dim) || k.size(dim) == 1) return true;
  const auto grouped = call.argument_index("enable_gqa");
  return grouped.has_value() && call.arg(*grouped).toBool() &&
         dim == q.ndim() - 3 && q.size(dim) % k.size(dim) == 0;
}

}  // namespace

at::Tensor MaskFor(const Operand& mask, const Layout& layout, int64_t ndim) {
  const int64_t dim = layout.dim - (ndim - mask.ndim());
  if (dim < 0 || mask.size(dim) == 1) return mask.Varying();
  return mask.To(layout.At(dim));
}

at::Tensor ForOwnHeads(const Axis& axis, const Operand& keys, const Operand& q,
                       const Layout& layout) {
  const int64_t heads = keys.size(layout.dim);
  const int64_t q_heads = q.size(layout.dim);
  const int64_t ranks = axis.size;
  if (heads == q_heads) return keys.To(layout);
  if (heads == 1) return keys.Varying();
  const bool alike = heads % ranks == 0 && q_heads % ranks == 0 &&
                     layout.blocks == 1 && !layout.balanced;
  if (alike) return keys.To(layout);
  const at::Tensor whole = keys.Varying();
  return whole.index_select(layout.dim,
                            OwnIndices(axis, layout, q_heads, whole.device())
                                .floor_divide(q_heads / heads));
}

std::optional<Values> AttentionRule(Call& call) {
  const Operand q = call.operand(0);
  const Operand k = call.operand(1);
  const Operand v = call.operand(2);
  const Operand mask = call.operand(kAttentionMask);
  const int64_t ndim = q.ndim();
  if (CutsSequence(call, q, k, v)) return AttendOverSequence(call);
  if (call.arg(kAttentionDropout).toDouble() != 0 || k.ndim() != ndim ||
      v.ndim() != ndim || mask.is_partial()) {
    return std::nullopt;
  }
  const int64_t sequence = ndim - 2;
  Layout layout = q.layout();
  for (const Operand* other : {&k, &v}) {
    const Layout& given = other->layout();
    if (!layout.is_shard() && given.is_shard() && given.dim < sequence &&
        other->size(given.dim) == q.size(given.dim)) {
      layout = given;
    }
  }
  if (!layout.is_shard() || layout.dim > sequence) return std::nullopt;
  Values args = call.args();
  args[0] = q.To(layout);
  if (mask.defined()) args[kAttentionMask] = MaskFor(mask, layout, ndim);
  if (layout.dim < sequence) {
    if (!Matches(call, q, k, layout.dim) || !Matches(call, q, v, layout.dim)) {
      return std::nullopt;
    }
    args[1] = ForOwnHeads(*call.axis(), k, q, layout);
    args[2] = ForOwnHeads(*call.axis(), v, q, layout);
  } else {
    args[1] = k.Varying();
    args[2] = v.Varying();
    if (call.arg(kAttentionIsCausal).toBool()) {
      // Aligned at the first key, as the operator's own.
      const at::Device device = q.part().device();
      const at::Tensor own =
          OwnIndices(*call.axis(), layout, q.size(sequence), device);
      const at::Tensor keys = at::arange(k.size(sequence), own.options());
      args[kAttentionMask] = own.unsqueeze(1).ge(keys.unsqueeze(0));
      args[kAttentionIsCausal] = false;
    }
  }
  Sizes whole = q.sizes();
  whole.back() = v.sizes().back();
  return call.Run(std::move(args), layout, whole);
}

}  // namespace fsdp::spmd
