// explain: what a config will do, in numbers: the mesh, the groups, ZeRO's
// stage and the memory of a rank. fsdp-config puts it into words. Pure; any
// thread.
#ifndef FSDP_CONFIG_EXPLAIN_H_
#define FSDP_CONFIG_EXPLAIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fsdp/config/group_plan.h"
#include "fsdp/config/mesh_plan.h"
#include "fsdp/config/train_config.h"

namespace fsdp {

struct ExplainOptions {
  int64_t world_size = 1;
  int64_t local_world_size = 1;  // ranks of one machine
  // Empty: nothing is said of groups and memory.
  std::vector<ParameterShape> parameters = {};
  // For the activations; 0: the config's, and where it has none, 1 sequence of
  // 2048.
  int64_t local_batch_size = 0;
  int64_t seq_len = 0;
};

// Bytes of one rank, the one that has most: shards of dimension 0 differ by a
// row, and are padded to the largest.
struct MemoryPlan {
  uint64_t parameters = 0;       // shards, in the optimizer's dtype
  uint64_t gradients = 0;        // shards, reduced
  uint64_t optimizer_state = 0;  // AdamW: two moments for each element
  // Parameters that are gathered at one time, at most: the root's, a layer's
  // that computes and a layer's that is prefetched; all of them when they are
  // not freed after forward.
  uint64_t gathered = 0;
  // Gradients of a group before they are reduced, and what its reduction and
  // that of the layer before it are sent from.
  uint64_t unreduced = 0;
  // What forward keeps for backward, at most (see [Note: activations]); 0
  // without `parameters`. With activation_cpu_offload the device has that of
  // one layer and of the root at a time, and the host all.
  uint64_t activations = 0;
  uint64_t activations_on_host = 0;
};

struct Explanation {
  MeshPlan mesh;
  std::vector<GroupPlan> groups;  // the root's last; empty without parameters
  uint64_t num_elements = 0;      // of all parameters
  MemoryPlan memory;
  int64_t local_batch_size = 0;  // that activations were reckoned with
  int64_t seq_len = 0;
  // 0 to 3, and with HSDP the same within a copy. 3 when parameters are freed
  // after forward.
  int zero_stage = 3;
};

// InvalidArgument as plan_mesh, and for parameters whose sizes overflow.
absl::StatusOr<Explanation> explain(const TrainConfig& config,
                                    const ExplainOptions& options);

}  // namespace fsdp

#endif  // FSDP_CONFIG_EXPLAIN_H_
