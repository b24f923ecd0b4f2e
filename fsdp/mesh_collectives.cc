#include "fsdp/mesh_collectives.h"

#include <vector>

#include "ATen/ops/empty_like.h"
#include "c10/core/ScalarType.h"
#include "c10/util/Exception.h"
#include "fsdp/work.h"

namespace fsdp {
namespace {

c10d::ReduceOp BackendOp(ReduceOp op, const at::Tensor& tensor) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kAvg:
      // Gloo divides in place and fails for integers; NCCL would truncate.
      TORCH_CHECK_NOT_IMPLEMENTED(
          c10::isFloatingType(tensor.scalar_type()),
          "an average over ranks of a tensor of ", tensor.scalar_type(),
          "; use Partial(kSum), or a floating-point dtype");
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
  }
  TORCH_INTERNAL_ASSERT(false, "no such reduction");
}

c10::intrusive_ptr<c10d::Backend> BackendOf(const ProcessGroup& group,
                                            const at::Tensor& tensor) {
  return group->getBackend(tensor.device().type());
}

// The same memory as a flat run of bytes.
at::Tensor Bytes(const at::Tensor& tensor) {
  return tensor.view({-1}).view(at::kByte);
}

bool IsAlone(const ProcessGroup& group) { return group->getSize() == 1; }

}  // namespace

void AllReduce(at::Tensor tensor, ReduceOp op, const ProcessGroup& group) {
  c10d::AllreduceOptions options;
  options.reduceOp = BackendOp(op, tensor);
  if (IsAlone(group) || tensor.numel() == 0) return;
  std::vector<at::Tensor> tensors{tensor};
  WaitForWork(BackendOf(group, tensor)->allreduce(tensors, options), *group,
              "all-reduce");
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
  WaitForWork(BackendOf(group, blocks)->_reduce_scatter_base(dst, src, options),
              *group, "reduce-scatter");
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
  WaitForWork(BackendOf(group, block)->_allgather_base(dst, src), *group,
              "all-gather");
  return blocks;
}

at::Tensor AllToAll(const at::Tensor& blocks, const ProcessGroup& group) {
  if (IsAlone(group) || blocks.numel() == 0) return blocks;
  at::Tensor received = at::empty_like(blocks);
  at::Tensor src = Bytes(blocks);
  at::Tensor dst = Bytes(received);
  std::vector<int64_t> even_splits;  // none given: as many bytes to each
  WaitForWork(BackendOf(group, blocks)
                  ->alltoall_base(dst, src, even_splits, even_splits),
              *group, "all-to-all");
  return received;
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
  WaitForWork(BackendOf(group, blocks)->scatter(dst, sources, options), *group,
              "scatter");
  return block;
}

void Broadcast(at::Tensor tensor, int64_t src, const ProcessGroup& group) {
  if (IsAlone(group) || tensor.numel() == 0) return;
  std::vector<at::Tensor> tensors{Bytes(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = src;
  WaitForWork(BackendOf(group, tensor)->broadcast(tensors, options), *group,
              "broadcast");
}

}  // namespace fsdp
