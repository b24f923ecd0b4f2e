// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/context/context_parallel.h"

#include <string>
#include <utility>
#include <vector>

#include "c10/util/Exception.h"
#include "fsdp/parallel/spmd/axis.h"
#include "fsdp/parallel/spmd/handler.h"
#include "fsdp/parallel/spmd/layout.h"
#include "fsdp/parallel/spmd/operand.h"
#include "fsdp/parallel/spmd/sharded.h"

namespace fsdp {
namespace {

spmd::SequenceAttention MethodNamed(const std::string& name) {
  if (name == "alltoall") return spmd::SequenceAttention::kRing;
  if (name == "ulysses") return spmd::SequenceAttention::kUlysses;
  TORCH_CHECK_VALUE(
      name == "allgather", "context_parallel: there is no method \"", name,
      "\"; write allgather, alltoall (ring attention) or ulysses");
  return spmd::SequenceAttention::kAllGather;
}

}  // namespace

void context_parallel(const DeviceMesh& mesh,
                      std::initializer_list<at::Tensor*> tensors,
                      const ContextParallelOptions& options) {
  const spmd::AxisPtr axis = spmd::InternAxis(mesh);
  const spmd::SequenceAttention method = MethodNamed(options.method);
  std::vector<at::Tensor> parts;
  for (const at::Tensor* tensor : tensors) {
    const int64_t dim = Shard(options.seq_dim).normalized(tensor->dim()).dim();
    TORCH_CHECK_VALUE(
        !options.load_balance || tensor->size(dim) % (2 * axis->size) == 0,
        "context_parallel: a sequence of ", tensor->size(dim),
        " cannot be balanced over ", axis->size,
        " ranks; its length must be a multiple of ", 2 * axis->size,
        ", or set load_balance to false");
    const spmd::Operand operand(*tensor, axis);
    const spmd::Layout layout =
        spmd::Layout::Shard(dim, /*blocks=*/1, options.load_balance);
    parts.push_back(
        spmd::Wrap(operand.To(layout), layout, axis, operand.sizes()));
  }
  spmd::InstallHandler();
  axis->sequence_attention = method;
  auto part = parts.begin();
  for (at::Tensor* tensor : tensors) *tensor = std::move(*part++);
}

}  // namespace fsdp
