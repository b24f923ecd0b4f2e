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

DeviceMesh MakeMesh(const MeshPlan& plan, const std::string& device) {
  std::vector<int64_t> shape;
  std::vector<std::string> names;
  if (plan.replicate > 1) {
    shape.push_back(plan.replicate);
    names.push_back("replicate");
  }
  shape.push_back(plan.shard);
  names.push_back("shard");
  if (plan.tensor_parallel > 1) {
    shape.push_back(plan.tensor_parallel);
    names.push_back("tp");
  }
  return init_device_mesh(device, shape, names);
}

DeviceMesh DataParallelMesh(const DeviceMesh& mesh) {
  std::vector<std::string> names = mesh.mesh_dim_names();
  if (names.back() != "tp") return mesh;
  names.pop_back();
  return mesh[names];
}

}  // namespace fsdp
