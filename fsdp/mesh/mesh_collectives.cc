// SPDX-License-Identifier: Apache-2.0
// Runs the collectives that move placements, as bytes where possible.
//
// Tested by tests/fsdp/mesh/redistribute_test.cc.
#include "fsdp/mesh/mesh_collectives.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "ATen/ops/empty_like.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "c10/core/ScalarType.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/collective_errors.h"
#include "fsdp/mesh/collective_order.h"

namespace fsdp {
namespace {

c10d::ReduceOp BackendOp(ReduceOp op, const at::Tensor& tensor) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kAvg:
      // Gloo divides in place and fails for integers; NCCL would truncate.
      TORCH_CHECK_NOT_IMPLEMENTED(
          c10::isFloatingType(tensor.scalar_type()), "a tensor of ",
          tensor.scalar_type(),
          " cannot be averaged over ranks; use Partial(kSum), or a "
          "floating-point dtype");
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
  }
  TORCH_INTERNAL_ASSERT(false, "unknown reduction");
}

c10::intrusive_ptr<c10d::Backend> GroupBackend(const ProcessGroup& group,
                                               const at::Tensor& tensor) {
  return group->getBackend(tensor.device().type());
}

// The same memory as a flat run of bytes. A contiguous tensor with one element
// may have any strides, which a view would keep.
at::Tensor Bytes(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}).view(at::kByte);
}

bool IsAlone(const ProcessGroup& group) { return group->getSize() == 1; }

// Issues a collective over the ranks' tensors and waits for it.
void Run(const ProcessGroup& group, const char* operation,
         const at::Tensor& tensor,
         absl::FunctionRef<c10::intrusive_ptr<c10d::Work>()> issue) {
  CheckInStep(group, tensor.device().type(),
              absl::StrCat(operation, " of ", tensor.nbytes(), " bytes"),
              "a DTensor or a norm");
  IssueAndWait(*group, operation, issue);
}

}  // namespace

void AllReduce(at::Tensor tensor, ReduceOp op, const ProcessGroup& group) {
  c10d::AllreduceOptions options;
  options.reduceOp = BackendOp(op, tensor);
  if (IsAlone(group) || tensor.numel() == 0) return;
  std::vector<at::Tensor> tensors{tensor};
  Run(group, "all-reduce", tensor,
      [&] { return GroupBackend(group, tensor)->allreduce(tensors, options); });
}

at::Tensor ReduceScatter(const at::Tensor& blocks, ReduceOp op,
                         const ProcessGroup& group) {
  c10d::ReduceScatterOptions options;
  options.reduceOp = BackendOp(op, blocks);
  if (IsAlone(group) || blocks.numel() == 0) return blocks[0].clone();
  at::Tensor block = at::empty_like(blocks[0]);
  // Flat: Gloo compares the first dimensions.
  at::Tensor src = blocks.view({-1});
  at::Tensor dst = block.view({-1});
  Run(group, "reduce-scatter", blocks, [&] {
    return GroupBackend(group, blocks)->_reduce_scatter_base(dst, src, options);
  });
  return block;
}

at::Tensor AllGather(const at::Tensor& block, const ProcessGroup& group) {
  if (IsAlone(group)) return block.unsqueeze(0);
  std::vector<int64_t> sizes = block.sizes().vec();
  sizes.insert(sizes.begin(), group->getSize());
  at::Tensor blocks = block.new_empty(sizes);
  if (block.numel() == 0) return blocks;
  at::Tensor src = Bytes(block);
  at::Tensor dst = Bytes(blocks);
  Run(group, "all-gather", block,
      [&] { return GroupBackend(group, block)->_allgather_base(dst, src); });
  return blocks;
}

at::Tensor AllToAll(const at::Tensor& blocks, const ProcessGroup& group) {
  if (IsAlone(group) || blocks.numel() == 0) return blocks;
  at::Tensor received = at::empty_like(blocks);
  at::Tensor src = Bytes(blocks);
  at::Tensor dst = Bytes(received);
  std::vector<int64_t> even_splits;  // empty: as many bytes to each rank
  Run(group, "all-to-all", blocks, [&] {
    return GroupBackend(group, blocks)
        ->alltoall_base(dst, src, even_splits, even_splits);
  });
  return received;
}

at::Tensor AllToAllRows(const at::Tensor& rows,
                        const std::vector<int64_t>& sent,
                        const std::vector<int64_t>& received,
                        const ProcessGroup& group) {
  if (IsAlone(group)) return rows;
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes[0] = std::accumulate(received.begin(), received.end(), int64_t{0});
  at::Tensor result = rows.new_empty(sizes);
  const auto bytes_by_row = [](const at::Tensor& tensor) {
    return tensor.unsqueeze(-1).flatten(1).view(at::kByte);
  };
  at::Tensor src = bytes_by_row(rows);
  at::Tensor dst = bytes_by_row(result);
  std::vector<int64_t> src_rows = sent;
  std::vector<int64_t> dst_rows = received;
  // Each rank has a row count of its own, so the ranks compare the size of one
  // row.
  CheckInStep(group, rows.device().type(),
              absl::StrCat("all-to-all of rows of ", src.size(1), " bytes"),
              "rows that are exchanged");
  IssueAndWait(*group, "all-to-all", [&] {
    return GroupBackend(group, rows)
        ->alltoall_base(dst, src, dst_rows, src_rows);
  });
  return result;
}

at::Tensor Scatter(const at::Tensor& blocks, int64_t src,
                   const ProcessGroup& group) {
  if (IsAlone(group) || blocks.numel() == 0) return blocks[0].clone();
  at::Tensor block = at::empty_like(blocks[0]);
  std::vector<at::Tensor> dst{Bytes(block)};
  std::vector<std::vector<at::Tensor>> sources;
  if (group->getRank() == src) {
    sources.emplace_back();
    for (const at::Tensor& b : blocks.unbind()) {
      sources[0].push_back(Bytes(b));
    }
  }
  c10d::ScatterOptions options;
  options.rootRank = src;
  Run(group, "scatter", block, [&] {
    return GroupBackend(group, blocks)->scatter(dst, sources, options);
  });
  return block;
}

void Broadcast(at::Tensor tensor, int64_t src, const ProcessGroup& group) {
  if (IsAlone(group) || tensor.numel() == 0) return;
  std::vector<at::Tensor> tensors{Bytes(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = src;
  Run(group, "broadcast", tensor,
      [&] { return GroupBackend(group, tensor)->broadcast(tensors, options); });
}

}  // namespace fsdp
