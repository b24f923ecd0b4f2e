// The collectives that placements need, over the group of one mesh axis, with
// the wait: the caller's stream (on the CPU: the caller) has the result. What
// only moves data moves bytes, so every dtype travels on every backend: Gloo
// itself refuses float8 and 16-bit integers. All calls are collective over
// `group`, communicate nothing when it has one rank, and take tensors that are
// contiguous, of the same sizes on every rank, on a device for which the group
// has a backend. For the thread that trains. Errors: c10::Error, of the
// backend.
#ifndef FSDP_MESH_COLLECTIVES_H_
#define FSDP_MESH_COLLECTIVES_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "fsdp/placement.h"
#include "fsdp/process_group.h"

namespace fsdp {

// Replaces the values of `tensor` by those of all ranks, reduced. Averages of
// integers are refused (c10::NotImplementedError).
void AllReduce(at::Tensor tensor, ReduceOp op, const ProcessGroup& group);

// `blocks[i]` is for rank i; returns this rank's, reduced.
at::Tensor ReduceScatter(const at::Tensor& blocks, ReduceOp op,
                         const ProcessGroup& group);

// Returns [ranks, ...sizes of block].
at::Tensor AllGather(const at::Tensor& block, const ProcessGroup& group);

// `blocks[i]` goes to rank i; in the result, [i] came from there.
at::Tensor AllToAll(const at::Tensor& blocks, const ProcessGroup& group);

// Returns `blocks[i]` of rank `src` on rank i.
at::Tensor Scatter(const at::Tensor& blocks, int64_t src,
                   const ProcessGroup& group);

// Replaces the values of `tensor` by those of rank `src`.
void Broadcast(at::Tensor tensor, int64_t src, const ProcessGroup& group);

}  // namespace fsdp

#endif  // FSDP_MESH_COLLECTIVES_H_
