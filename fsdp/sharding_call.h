// SPDX-License-Identifier: Apache-2.0
// ShardingCall: what fully_shard and replicate have in common: they validate a
// call, put the modules' parameters under the engine, and give the handle. For
// the thread that trains.
#ifndef FSDP_SHARDING_CALL_H_
#define FSDP_SHARDING_CALL_H_

#include <memory>
#include <string>
#include <vector>

#include "fsdp/engine/data_parallel_mesh.h"
#include "fsdp/engine/fully_shard_options.h"
#include "fsdp/fsdp_module.h"
#include "fsdp/mesh/device_mesh.h"
#include "torch/nn/module.h"

namespace fsdp {

struct ShardingCall {
  const char* function;  // for errors
  DataParallelMesh mesh;
  FullyShardOptions options;  // without the mesh
};

// All ranks on one axis; initialises the process group if needed.
DeviceMesh DefaultMesh(const std::vector<std::string>& mesh_dim_names = {});

// Validates everything before anything changes. Collective when an int
// reshard_after_forward needs new groups.
FSDPModule CallOnModules(
    const ShardingCall& call,
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules);

}  // namespace fsdp

#endif  // FSDP_SHARDING_CALL_H_
