// MeshPlan: the mesh that a config asks for, on a number of ranks. Pure; any
// thread.
#ifndef FSDP_CONFIG_MESH_PLAN_H_
#define FSDP_CONFIG_MESH_PLAN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "fsdp/config/train_config.h"

namespace fsdp {

// Ranks on each axis, outermost first; their product is the number of ranks.
struct MeshPlan {
  int64_t replicate = 1;
  int64_t shard = 1;
  int64_t tensor_parallel = 1;

  friend bool operator==(const MeshPlan&, const MeshPlan&) = default;
};

// `local_world_size` is the number of ranks on one machine. Returns
// InvalidArgument, with the place of the wrong degree, if the product of the
// degrees is not the number of ranks.
absl::StatusOr<MeshPlan> plan_mesh(const MeshConfig& mesh, int64_t world_size,
                                   int64_t local_world_size);

}  // namespace fsdp

#endif  // FSDP_CONFIG_MESH_PLAN_H_
