// SPDX-License-Identifier: Apache-2.0
// MeshPlan: the mesh that a config asks for, on a given number of ranks. Pure;
// any thread.
#ifndef CONFIG_EXPLAIN_MESH_PLAN_H_
#define CONFIG_EXPLAIN_MESH_PLAN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "config/model/train_config.h"

namespace fsdp {

struct MeshPlan {
  // Ranks on each axis, outermost first; their product is the number of ranks.
  int64_t pipeline_parallel = 1;
  int64_t replicate = 1;
  int64_t shard = 1;
  int64_t context_parallel = 1;
  int64_t tensor_parallel = 1;
  // How the ranks of shard, context_parallel and tensor_parallel are divided
  // for experts.
  int64_t expert_parallel = 1;
  int64_t expert_tensor_parallel = 1;

  // Over how many ranks fully_shard cuts a parameter: ranks that share a
  // sequence also have parts of it.
  int64_t num_shards() const { return shard * context_parallel; }

  friend bool operator==(const MeshPlan&, const MeshPlan&) = default;
};

// `local_world_size` is the number of ranks on one machine. Returns
// InvalidArgument, with the wrong degree's place, if the product of the degrees
// is not the number of ranks, if experts cannot be divided by the degrees, or
// if no ranks are shards although the program requires it.
absl::StatusOr<MeshPlan> plan_mesh(const MeshConfig& mesh, int64_t world_size,
                                   int64_t local_world_size);

}  // namespace fsdp

#endif  // CONFIG_EXPLAIN_MESH_PLAN_H_
