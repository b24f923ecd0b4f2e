// explain: what a config will do, in words and numbers: the mesh and its
// groups, ZeRO's stage, what is gathered and reduced when, and the memory of a
// rank. Pure; any thread.
#ifndef FSDP_CONFIG_EXPLAIN_H_
#define FSDP_CONFIG_EXPLAIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dcp/tensor/dtype.h"
#include "fsdp/config/mesh_plan.h"
#include "fsdp/config/train_config.h"

namespace fsdp {

// A parameter of a model, as a checkpoint lists it.
struct ParameterShape {
  std::string name;  // "model.layers.0.mlp.up_proj.weight"
  std::vector<int64_t> sizes;
};

struct ExplainOptions {
  int64_t world_size = 0;        // 0: the config's num_processes, else 8
  int64_t local_world_size = 0;  // ranks of a machine; 0: at most 8
  // Empty: what depends on the model is said per parameter.
  std::vector<ParameterShape> parameters;
  // For the bound of activations; 0: the config's, else it is left out.
  int64_t local_batch_size = 0;
  int64_t seq_len = 0;
};

// A group of parameters: one all-gather, one reduce-scatter.
struct GroupPlan {
  std::string name;     // of the module; empty: the root
  int64_t numel = 0;    // elements
  int64_t local_numel;  // of a rank, with the padding of uneven shards
};

struct MemoryPlan {              // bytes of one rank
  uint64_t parameters = 0;       // shards
  uint64_t gradients = 0;        // shards
  uint64_t optimizer_state = 0;  // AdamW: two moments
  // Largest while training: parameters that are gathered, with the next group
  // that is prefetched, and the gradients that wait to be reduced.
  uint64_t gathered = 0;
  uint64_t activations_bound = 0;  // 0: not known
};

struct Explanation {
  int64_t world_size = 0;
  MeshPlan mesh;
  std::string zero_stage;  // "ZeRO-3: parameters, gradients and ..."
  std::vector<GroupPlan> groups;
  MemoryPlan memory;
  std::string text;  // all of it, for a person; ends with a newline
};
absl::StatusOr<Explanation> explain(const TrainConfig& config,
                                    const ExplainOptions& options);

}  // namespace fsdp

#endif  // FSDP_CONFIG_EXPLAIN_H_
