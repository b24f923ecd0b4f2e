// SPDX-License-Identifier: Apache-2.0
// explain: describes a config in numbers: the mesh, the groups, ZeRO's stage
// and a rank's memory. fsdp-config puts it into words. Pure; any thread.
#ifndef CONFIG_EXPLAIN_EXPLAIN_H_
#define CONFIG_EXPLAIN_EXPLAIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "config/explain/group_plan.h"
#include "config/explain/mesh_plan.h"
#include "config/model/train_config.h"

namespace fsdp {

struct ExplainOptions {
  int64_t world_size = 1;
  int64_t local_world_size = 1;  // ranks on one machine
  // Empty: the explanation has neither groups nor memory.
  std::vector<ParameterShape> parameters = {};
  // For the activations; 0: the config's values or, if it has none, 1 sequence
  // with 2048 tokens.
  int64_t local_batch_size = 0;
  int64_t seq_len = 0;
};

// Bytes on the rank that has most: shards on dimension 0 differ by at most one
// row, and are padded to the largest. Tensor, pipeline and expert parallelism
// are not taken into account; a rank has less with them.
struct MemoryPlan {
  uint64_t parameters = 0;       // shards, in the optimizer's dtype
  uint64_t gradients = 0;        // shards, reduced
  uint64_t optimizer_state = 0;  // AdamW: two moments for each element
  // The most parameters that are gathered at one time: those of the root, of
  // the computing layer and of the prefetched layer; all parameters if they are
  // not freed after forward.
  uint64_t gathered = 0;
  // A group's gradients before they are reduced, and the send buffers for this
  // group's and the previous layer's reductions.
  uint64_t unreduced = 0;
  // The most that forward keeps for backward (see [Note: activations]); 0
  // without `parameters`. With activation_cpu_offload the device holds the
  // activations of one layer and of the root at a time, and the host holds all.
  uint64_t activations = 0;
  uint64_t activations_on_host = 0;
};

struct Explanation {
  MeshPlan mesh;
  std::vector<GroupPlan> groups;  // the root's last; empty without parameters
  uint64_t num_elements = 0;      // of all parameters
  MemoryPlan memory;
  // For the activations; ranks that share sequences have their part of them.
  int64_t local_batch_size = 0;
  int64_t seq_len = 0;
  // 0 to 3; with HSDP this is the stage within a copy. 3 if parameters are
  // freed after forward.
  int zero_stage = 3;
};

// Returns InvalidArgument where plan_mesh does, and for parameters with sizes
// that overflow.
absl::StatusOr<Explanation> explain(const TrainConfig& config,
                                    const ExplainOptions& options);

}  // namespace fsdp

#endif  // CONFIG_EXPLAIN_EXPLAIN_H_
