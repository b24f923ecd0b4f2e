// SPDX-License-Identifier: Apache-2.0
// Makes the meshes for a config's degrees.
//
// Tested by tests/fsdp/prepare/prepare_test.cc.
#include "fsdp/prepare/mesh.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/mesh/backend_registry.h"
#include "fsdp/mesh/launch.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/prepare/refusal.h"

namespace fsdp {

absl::StatusOr<MeshPlan> PlanMeshOfWorld(const MeshConfig& config) {
  DCP_ASSIGN_OR_RETURN(const Launch launch, CatchTorch([] {
                         if (!is_initialized()) init_process_group();
                         return ReadLaunch(GetEnvironment);
                       }));
  const int64_t world_size = get_world_size();
  int64_t local_world_size = launch.local_world_size;
  if (local_world_size == 0) {
    if (*config.data_parallel_shard_degree == kShardWithinNode) {
      return Refusal(config.data_parallel_shard_degree,
                     "data_parallel_shard_degree",
                     "shards within a machine, but nothing says how many ranks "
                     "this one has; set LOCAL_WORLD_SIZE");
    }
    local_world_size = world_size;  // not used then
  }
  return plan_mesh(config, world_size, local_world_size);
}

std::string DeviceOr(const std::string& device) {
  if (!device.empty()) return device;
  const std::vector<const BackendKind*> kinds = RegisteredBackends();
  const bool has_cuda =
      std::any_of(kinds.begin(), kinds.end(), [](const BackendKind* kind) {
        return kind->device_type == c10::kCUDA && kind->is_available();
      });
  return has_cuda ? "cuda" : "cpu";
}

ParallelDims MakeDims(const MeshPlan& plan, const std::string& device) {
  return init_parallel_dims({.pp = plan.pipeline_parallel,
                             .dp_replicate = plan.replicate,
                             .dp_shard = plan.shard,
                             .cp = plan.context_parallel,
                             .tp = plan.tensor_parallel,
                             .ep = plan.expert_parallel,
                             .etp = plan.expert_tensor_parallel},
                            device);
}

}  // namespace fsdp
