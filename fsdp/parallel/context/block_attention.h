// SPDX-License-Identifier: Apache-2.0
// Attention over one block of the keys, and the merging of such blocks: the
// kernels that also return the logarithm of each softmax's denominator, and a
// plain formula where PyTorch has no such kernel. Nothing here communicates or
// records a graph. Any thread.
//
// Queries are [batch, heads, L, E], keys [batch, key heads, S, E], values
// [batch, key heads, S, E or another size]; key heads divide heads, and each
// belongs to a group of neighbouring heads of queries. No size is zero.
#ifndef FSDP_PARALLEL_CONTEXT_BLOCK_ATTENTION_H_
#define FSDP_PARALLEL_CONTEXT_BLOCK_ATTENTION_H_

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"

namespace fsdp {

struct BlockForm {
  // Query i uses the keys up to i; then L = S.
  bool is_causal;
  // The factor for the products of queries and keys.
  double scale;
};

struct AttendedBlock {
  // [batch, heads, L, E of the values].
  at::Tensor out;
  // log(sum(exp(scores))) for each query: [batch, heads, L].
  at::Tensor lse;
};

struct BlockGradients {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

// The dtype in which blocks are merged: float64 for float64, else float32.
c10::ScalarType MergeDtype(c10::ScalarType dtype);

// `out` has the dtype of q or MergeDtype, `lse` has MergeDtype.
AttendedBlock AttendBlock(const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v, const BlockForm& form);

// The block's share in the gradients. `attended` is the attention of these
// queries over all keys, not only over the block's, with `out` in q's dtype;
// `grad` is the gradient of that `out`. Results have the dtype of q or
// MergeDtype.
BlockGradients AttendBlockBackward(const at::Tensor& grad, const at::Tensor& q,
                                   const at::Tensor& k, const at::Tensor& v,
                                   const AttendedBlock& attended,
                                   const BlockForm& form);

// Merges the attention of the same queries over further keys into `merged`, in
// place; it has MergeDtype. Before the first block, it is zeros and an lse of
// minus infinity.
void MergeBlock(const AttendedBlock& merged, const AttendedBlock& block);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_CONTEXT_BLOCK_ATTENTION_H_
