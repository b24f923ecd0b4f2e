// SPDX-License-Identifier: Apache-2.0
// A parameter group's communication as free functions over tensors: copying
// parameters into one buffer, sending it, copying out, and dividing gradients.
// No state. FsdpParamGroup calls them on the current stream.
//
// Layout of a gather: every rank contributes `row` bytes, the parameters'
// padded shards one after the other, each at a multiple of kAlignment; the
// output is the rows in rank order. Layout of a reduction: every rank
// contributes `world` rows, of which rank r will own row r, without padding
// between parameters.
#ifndef FSDP_ENGINE_COMM_COLLECTIVES_H_
#define FSDP_ENGINE_COMM_COLLECTIVES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"
#include "fsdp/mesh/process_group.h"
#include "torch/csrc/distributed/c10d/Types.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace fsdp {

struct ShardGeometry;

using Work = c10::intrusive_ptr<c10d::Work>;

// Lets any dtype be viewed in a byte buffer.
inline constexpr int64_t kAlignment = 16;
int64_t AlignUp(int64_t num_bytes);

// Fills `output` (world times `input`) with every rank's input. Returns null on
// a device with streams, because there the stream waits. This function and the
// next raise the backend's own errors: see IssueWork.
Work AllGatherInto(const at::Tensor& output, const at::Tensor& input,
                   c10d::ProcessGroup& group);
// Sets `output` to this rank's row of the reduced `input`.
Work ReduceScatterInto(const at::Tensor& output, const at::Tensor& input,
                       const c10d::ReduceOp& op, c10d::ProcessGroup& group);
Work AllReduce(const at::Tensor& tensor, const c10d::ReduceOp& op,
               c10d::ProcessGroup& group);

// Copies one parameter's shards, byte `rows` [world, padded_numel * itemsize],
// into the flat gathered tensor.
void CopyOut(const at::Tensor& rows, const ShardGeometry& geometry,
             const at::Tensor& flat);

// Copies a whole parameter's gradient into the parameter's columns of the rows
// [world, padded_numel], cast and padded with zeros.
void CopyInGradient(const at::Tensor& gradient, const ShardGeometry& geometry,
                    const at::Tensor& rows);

// How gradients are divided, so that they become the average over all ranks, or
// the sum divided by `factor`. For float32 and bfloat16 the collective divides;
// other dtypes are divided half before and half after, so that float16 neither
// overflows nor underflows (torch/distributed/fsdp/_fully_shard/
// _fsdp_collectives.py, _get_gradient_divide_factors).
struct ReductionPlan {
  double pre_divide = 1;   // before the reduce-scatter
  double post_divide = 1;  // after everything
  c10d::ReduceOp reduce_scatter_op = c10d::ReduceOp::SUM;
  c10d::ReduceOp all_reduce_op = c10d::ReduceOp::SUM;
};
struct ReductionRequest {
  c10::ScalarType dtype;
  int64_t shard_world = 1;
  int64_t replicate_world = 1;
  std::optional<double> factor;
  bool force_sum = false;
  // Whether the backend can scale before it sums (NCCL); others sum, and the
  // engine divides afterwards.
  bool has_premul_sum = false;
};
ReductionPlan PlanReduction(const ReductionRequest& request);

}  // namespace fsdp

#endif  // FSDP_ENGINE_COMM_COLLECTIVES_H_
