// SPDX-License-Identifier: Apache-2.0
// ShardPlan: the parameters and buffers that a fully_shard call will take, and
// how each parameter is cut; found and validated before anything changes. For
// the thread that trains; nothing here communicates.
#ifndef FSDP_ENGINE_SHARD_PLAN_H_
#define FSDP_ENGINE_SHARD_PLAN_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/all_gather_extension.h"
#include "fsdp/engine/comm/shard_geometry.h"
#include "fsdp/engine/data_parallel_mesh.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/fully_shard_options.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor_spec.h"
#include "torch/nn/module.h"

namespace fsdp {

struct ShardPlan {
  struct Param {
    at::Tensor tensor;
    std::string name;  // below the call's module, for errors
    std::vector<FsdpParam::Slot> slots = {};
    ShardGeometry geometry = {};
    std::optional<DTensorSpec> spec = {};             // set when planned
    std::optional<c10::ScalarType> param_dtype = {};  // see the policy
    std::optional<AllGatherExtension> extension = {};
    at::Tensor stored = {};  // is cut instead of `tensor`; undefined: not set
    // Holds the parameter now, for another parallelism; Release gives `tensor`.
    FsdpParam* parallel = nullptr;
  };
  // Parameters over the same process groups.
  struct Group {
    DataParallelMesh mesh;
    std::vector<Param> params;
  };
  std::vector<Group> groups;  // in the order of their first parameters
  std::vector<at::Tensor> buffers;
};

// Plans the call on `modules`; none is inside another. `mesh` is for parameters
// for which shard_placement_fn gives none. Throws c10::ValueError,
// c10::NotImplementedError or c10::Error for a parameter that cannot be sharded
// as the options say.
ShardPlan PlanShards(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
    const DataParallelMesh& mesh, const FullyShardOptions& options);

}  // namespace fsdp

#endif  // FSDP_ENGINE_SHARD_PLAN_H_
