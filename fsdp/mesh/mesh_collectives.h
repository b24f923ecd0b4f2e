// SPDX-License-Identifier: Apache-2.0
// The collectives that placements need, over the group of one mesh axis. They
// wait: when they return, the caller's stream (on the CPU: the caller) has the
// result. Those that only move data move bytes, so every dtype works on every
// backend, although Gloo itself refuses float8 and 16-bit integers. All calls
// are collective over `group`, communicate nothing when it has one rank, and
// take tensors that are contiguous, of the same sizes on every rank, on a
// device for which the group has a backend. For the thread that trains. Errors
// are the backend's (c10::Error).
#ifndef FSDP_MESH_MESH_COLLECTIVES_H_
#define FSDP_MESH_MESH_COLLECTIVES_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/mesh/placement.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

// Replaces the values of `tensor` with the reduction over all ranks. Averages
// of integers are refused (c10::NotImplementedError).
void AllReduce(at::Tensor tensor, ReduceOp op, const ProcessGroup& group);

// `blocks[i]` is for rank i; returns this rank's block, reduced.
at::Tensor ReduceScatter(const at::Tensor& blocks, ReduceOp op,
                         const ProcessGroup& group);

// Returns [ranks, ...sizes of block].
at::Tensor AllGather(const at::Tensor& block, const ProcessGroup& group);

// `blocks[i]` goes to rank i; in the result, [i] came from there.
at::Tensor AllToAll(const at::Tensor& blocks, const ProcessGroup& group);

// The next sent[i] rows (dim 0) of `rows` go to rank i; the result has
// received[i] rows from each rank i, in order. Here sizes may differ between
// ranks in dim 0, and be zero.
at::Tensor AllToAllRows(const at::Tensor& rows,
                        const std::vector<int64_t>& sent,
                        const std::vector<int64_t>& received,
                        const ProcessGroup& group);

// Returns `blocks[i]` of rank `src` on rank i.
at::Tensor Scatter(const at::Tensor& blocks, int64_t src,
                   const ProcessGroup& group);

// Replaces the values of `tensor` with those of rank `src`.
void Broadcast(at::Tensor tensor, int64_t src, const ProcessGroup& group);

}  // namespace fsdp

#endif  // FSDP_MESH_MESH_COLLECTIVES_H_
