// SPDX-License-Identifier: Apache-2.0
// The order in which experts compute rows: which expert each row is for, and
// the permutations between orders. Rows that came from several ranks lie by
// rank and, for each rank, by expert; experts need them by expert. Pure; on the
// arguments' device, without waiting for it.
#ifndef FSDP_PARALLEL_EXPERTS_EXPERT_ORDER_H_
#define FSDP_PARALLEL_EXPERTS_EXPERT_ORDER_H_

#include <cstdint>

#include "ATen/core/Tensor.h"

namespace fsdp {

// How many rows each of `num_experts` experts gets: [num_experts], int64, from
// expert numbers in any shape.
at::Tensor CountPerExpert(const at::Tensor& experts, int64_t num_experts);

// The permutation `p` that makes rows[p] lie by expert and, for each expert, by
// rank. counts[r][e] says how many rows rank r has for expert e, int64;
// `num_rows` is the sum.
at::Tensor ByExpert(const at::Tensor& counts, int64_t num_rows);

// The permutation that undoes `order`.
at::Tensor Inverse(const at::Tensor& order);

// Each row's place when every expert's rows begin at a multiple of `alignment`.
// counts: [experts], int64, for `num_rows` rows by expert.
struct AlignedRows {
  at::Tensor places;   // [num_rows], int64
  at::Tensor ends;     // [experts], int32: where each expert's padded rows end
  int64_t num_places;  // enough for every padding
};
AlignedRows Align(const at::Tensor& counts, int64_t num_rows,
                  int64_t alignment);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_EXPERTS_EXPERT_ORDER_H_
