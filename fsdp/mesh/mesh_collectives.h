// SPDX-License-Identifier: Apache-2.0
// The collectives that placements need, over one mesh axis's group. They wait:
// when they return, the caller's stream (on the CPU: the caller) has the
// result. Calls that only move data move bytes, so every dtype works on every
// backend, although Gloo itself refuses float8 and 16-bit integers. All calls
// are collective over `group`, and communicate nothing when it has one rank.
// They take contiguous tensors with the same sizes on every rank, on a device
// for which the group has a backend. For the thread that trains. Errors are the
// backend's (c10::Error).
#ifndef FSDP_MESH_MESH_COLLECTIVES_H_
#define FSDP_MESH_MESH_COLLECTIVES_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/mesh/placement.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

// Replaces the values in `tensor` with the reduction over all ranks. Averages
// of integers are refused (c10::NotImplementedError).
void AllReduce(at::Tensor tensor, ReduceOp op, const ProcessGroup& group);

// `blocks[i]` is for rank i; returns this rank's block, reduced.
at::Tensor ReduceScatter(const at::Tensor& blocks, ReduceOp op,
                         const ProcessGroup& group);

// Returns [ranks, ...the block's sizes].
at::Tensor AllGather(const at::Tensor& block, const ProcessGroup& group);

// `blocks[i]` goes to rank i; in the result, [i] came from there.
at::Tensor AllToAll(const at::Tensor& blocks, const ProcessGroup& group);

// The next sent[i] rows (dim 0) in `rows` go to rank i; the result has
// received[i] rows from each rank i, in order. Here dim 0 may differ between
// ranks, and be zero.
at::Tensor AllToAllRows(const at::Tensor& rows,
                        const std::vector<int64_t>& sent,
                        const std::vector<int64_t>& received,
                        const ProcessGroup& group);

// Returns `blocks[i]` from rank `src` on rank i.
at::Tensor Scatter(const at::Tensor& blocks, int64_t src,
                   const ProcessGroup& group);

// Replaces the values in `tensor` with those on rank `src`.
void Broadcast(at::Tensor tensor, int64_t src, const ProcessGroup& group);

}  // namespace fsdp

#endif  // FSDP_MESH_MESH_COLLECTIVES_H_
