// SPDX-License-Identifier: Apache-2.0
// Issues collectives, copies parameters and gradients in and out of buffers,
// and chooses divisors.
// Tested by tests/fsdp/fsdp_module_reduction_test.cc.
#include "fsdp/engine/comm/collectives.h"

#include <algorithm>

#include "ATen/ops/cat.h"
#include "fsdp/engine/comm/shard_geometry.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace fsdp {
namespace {

c10d::Backend& BackendFor(const at::Tensor& tensor, c10d::ProcessGroup& group) {
  return *group.getBackend(tensor.device().type());
}

// On a device with streams a collective runs on the current one; on the CPU a
// backend thread runs it.
bool IsAsync(const at::Tensor& tensor) { return tensor.device().is_cpu(); }

}  // namespace

int64_t AlignUp(int64_t num_bytes) {
  return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Work AllGatherInto(const at::Tensor& output, const at::Tensor& input,
                   c10d::ProcessGroup& group) {
  at::Tensor dst = output;
  at::Tensor src = input;
  c10d::AllgatherOptions options;
  options.asyncOp = IsAsync(dst);
  return BackendFor(dst, group)._allgather_base(dst, src, options);
}

Work ReduceScatterInto(const at::Tensor& output, const at::Tensor& input,
                       const c10d::ReduceOp& op, c10d::ProcessGroup& group) {
  at::Tensor dst = output;
  at::Tensor src = input;
  c10d::ReduceScatterOptions options;
  options.reduceOp = op;
  options.asyncOp = IsAsync(dst);
  return BackendFor(dst, group)._reduce_scatter_base(dst, src, options);
}

Work AllReduce(const at::Tensor& tensor, const c10d::ReduceOp& op,
               c10d::ProcessGroup& group) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  options.asyncOp = IsAsync(tensor);
  return BackendFor(tensor, group).allreduce(tensors, options);
}

void CopyOut(const at::Tensor& rows, const ShardGeometry& geometry,
             const at::Tensor& flat) {
  if (geometry.dim == 0) {
    flat.view(at::kByte).view({geometry.world, -1}).copy_(rows);
    return;
  }
  // Parts are adjacent along `dim`; such shards are even.
  std::vector<at::Tensor> parts;
  parts.reserve(static_cast<size_t>(geometry.world));
  for (int64_t rank = 0; rank < geometry.world; ++rank) {
    parts.push_back(rows.select(0, rank)
                        .view(flat.scalar_type())
                        .view(geometry.padded_sizes()));
  }
  at::Tensor whole = flat.view(geometry.sizes);
  at::cat_out(whole, parts, geometry.dim);
}

void CopyInGradient(const at::Tensor& gradient, const ShardGeometry& geometry,
                    const at::Tensor& rows) {
  if (geometry.dim != 0) {
    for (int64_t rank = 0; rank < geometry.world; ++rank) {
      rows.select(0, rank)
          .view(geometry.padded_sizes())
          .copy_(gradient.narrow(geometry.dim, rank * geometry.chunk(),
                                 geometry.chunk()));
    }
    return;
  }
  const at::Tensor flat = gradient.reshape({-1});
  const int64_t width = geometry.padded_numel();
  const int64_t num_full = width == 0 ? 0 : flat.numel() / width;
  if (num_full > 0) {
    rows.narrow(0, 0, num_full)
        .copy_(flat.narrow(0, 0, num_full * width).view({num_full, width}));
  }
  if (num_full == geometry.world) return;
  const int64_t rest = flat.numel() - num_full * width;
  at::Tensor row = rows.select(0, num_full);
  row.narrow(0, 0, rest).copy_(flat.narrow(0, num_full * width, rest));
  row.narrow(0, rest, width - rest).zero_();
  rows.narrow(0, num_full + 1, geometry.world - num_full - 1).zero_();
}

ReductionPlan PlanReduction(const ReductionRequest& request) {
  const double world =
      static_cast<double>(request.shard_world * request.replicate_world);
  const bool may_overflow =
      request.dtype != at::kFloat && request.dtype != at::kBFloat16;
  ReductionPlan plan;
  if (!may_overflow && !request.force_sum) {
    if (!request.factor.has_value()) {
      if (world > 1) {
        plan.reduce_scatter_op = c10d::ReduceOp::AVG;
        plan.all_reduce_op = c10d::ReduceOp::AVG;
      }
      return plan;
    }
    if (*request.factor == static_cast<double>(request.shard_world)) {
      plan.reduce_scatter_op = c10d::ReduceOp::AVG;
    } else if (request.shard_world == 1) {
      // Without a reduce-scatter.
      plan.pre_divide = *request.factor;
    } else if (request.has_premul_sum) {
      plan.reduce_scatter_op = c10d::makeNCCLPreMulSum(1.0 / *request.factor);
    } else {
      plan.post_divide = *request.factor;
    }
    return plan;
  }
  const double factor = request.factor.value_or(world);
  if (may_overflow) {
    const auto divides = [factor](double by) {
      return static_cast<double>(static_cast<int64_t>(factor / by)) * by ==
             factor;
    };
    while (divides(plan.pre_divide) &&
           factor / plan.pre_divide > plan.pre_divide) {
      plan.pre_divide *= 2;
    }
  }
  plan.post_divide = factor / plan.pre_divide;
  return plan;
}

}  // namespace fsdp
