// The communication of a parameter group as free functions over tensors:
// what is copied together, sent, and taken apart, and by what gradients are
// divided. No state. Called by FsdpParamGroup on the stream that is current.
//
// Layout of a gather: every rank contributes `row` bytes, the parameters'
// padded shards one behind the other, each at a multiple of kAlignment; the
// output is the rows in the order of ranks. Layout of a reduction: every rank
// contributes `world` rows, row r what rank r will own, without padding
// between parameters.
#ifndef FSDP_COLLECTIVES_H_
#define FSDP_COLLECTIVES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"
#include "fsdp/process_group.h"
#include "torch/csrc/distributed/c10d/Types.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace fsdp {

struct ShardGeometry;

using Work = c10::intrusive_ptr<c10d::Work>;

// So that any dtype can be viewed in a buffer of bytes.
inline constexpr int64_t kAlignment = 16;
int64_t AlignUp(int64_t num_bytes);

// Errors of these are the backend's own: see IssueWork.
// Fills `output` (world times `input`) with the input of every rank. Null on a
// stream: there the stream is what waits.
Work AllGatherInto(const at::Tensor& output, const at::Tensor& input,
                   c10d::ProcessGroup& group);
// `output` becomes this rank's row of the reduced `input`.
Work ReduceScatterInto(const at::Tensor& output, const at::Tensor& input,
                       const c10d::ReduceOp& op, c10d::ProcessGroup& group);
Work AllReduce(const at::Tensor& tensor, const c10d::ReduceOp& op,
               c10d::ProcessGroup& group);

// One parameter's shards, `rows` of bytes [world, padded_numel * itemsize],
// into its flat gathered tensor.
void CopyOut(const at::Tensor& rows, const ShardGeometry& geometry,
             const at::Tensor& flat);

// One gradient, of the whole parameter, into its columns of the rows
// [world, padded_numel]; cast, and padded with zeros.
void CopyInGradient(const at::Tensor& gradient, const ShardGeometry& geometry,
                    const at::Tensor& rows);

// By what, and where, gradients are divided, so that they end as the average
// over all ranks, or divided by `factor`. float32 and bfloat16 leave it to the
// collective; other dtypes divide half before and half after, so that float16
// neither overflows nor underflows (torch/distributed/fsdp/_fully_shard/
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
  // Whether the backend can scale before it sums (NCCL); others sum, and we
  // divide after.
  bool has_premul_sum = false;
};
ReductionPlan PlanReduction(const ReductionRequest& request);

}  // namespace fsdp

#endif  // FSDP_COLLECTIVES_H_
