// SPDX-License-Identifier: Apache-2.0

#include "fsdp/engine/extension_inputs.h"

#include <cstddef>
#include <cstdint>

#include "ATen/ops/cat.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/mesh/mesh_collectives.h"

namespace fsdp {
namespace {

struct ExtendedShard {
  FsdpParam& param;
  at::Tensor shard;    // on the device that computes
  at::Tensor maximum;  // over all ranks; undefined if not needed

  const AllGatherExtension& extension() const { return *param.extension(); }
};

void ReduceMaxima(std::vector<ExtendedShard>& shards,
                  const ProcessGroup& group) {
  std::vector<at::Tensor> local;
  for (const ExtendedShard& shard : shards) {
    const auto& local_maximum = shard.extension().local_maximum;
    if (!local_maximum) continue;
    local.push_back(local_maximum(shard.shard));
    TORCH_CHECK(
        local.back().dim() == 1 && local.back().scalar_type() == at::kFloat,
        "fsdp: the all-gather extension of '", shard.param.name(),
        "' gave a maximum of sizes ", local.back().sizes(), " and dtype ",
        local.back().scalar_type(), "; it must be a row of float32");
  }
  if (local.empty()) return;
  const at::Tensor all = at::cat(local);
  AllReduce(all, ReduceOp::kMax, group);
  int64_t begin = 0;
  size_t next = 0;
  for (ExtendedShard& shard : shards) {
    if (!shard.extension().local_maximum) continue;
    const int64_t length = local[next++].size(0);
    shard.maximum = all.narrow(0, begin, length);
    begin += length;
  }
}

}  // namespace

std::vector<AllGatherExtension::Inputs> ExtensionInputs(const GroupData& data) {
  const DeviceMesh shard_mesh = data.config.mesh.shard_mesh();
  std::vector<ExtendedShard> shards;
  for (const auto& param : data.params) {
    if (!param->extension().has_value()) continue;
    shards.push_back({.param = *param,
                      .shard = param->padded_shard()
                                   .view(param->geometry().padded_sizes())
                                   .to(data.config.device,
                                       /*non_blocking=*/true),
                      .maximum = {}});
  }
  ReduceMaxima(shards, shard_mesh.get_group());
  std::vector<AllGatherExtension::Inputs> all;
  for (const ExtendedShard& shard : shards) {
    all.push_back(shard.extension().pre_all_gather(
        shard.shard, {.mesh = shard_mesh,
                      .size = shard.param.geometry().sizes,
                      .param_dtype = shard.param.param_dtype(),
                      .maximum = shard.maximum}));
    for (const at::Tensor& tensor : all.back().tensors) {
      TORCH_CHECK(tensor.is_contiguous(), "fsdp: the all-gather extension of '",
                  shard.param.name(), "' gave a tensor that is not contiguous");
    }
  }
  return all;
}

}  // namespace fsdp
