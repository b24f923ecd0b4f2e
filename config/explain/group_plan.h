// SPDX-License-Identifier: Apache-2.0
// GroupPlan: the parameters that become one group. From the names and shapes
// that a checkpoint lists, it guesses the parameters that fully_shard will find
// in each module. Pure; any thread.
#ifndef CONFIG_EXPLAIN_GROUP_PLAN_H_
#define CONFIG_EXPLAIN_GROUP_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "config/model/train_config.h"

namespace fsdp {

// A model's parameter, as a checkpoint lists it.
struct ParameterShape {
  std::string name;  // "model.layers.0.mlp.up_proj.weight"
  std::vector<int64_t> sizes;
};

// A parameter group: one all-gather, one reduce-scatter.
struct GroupPlan {
  std::string name;  // of the module; empty: the root
  std::vector<ParameterShape> parameters;
};

// The groups of a wrap policy, ordered by their first parameters. The root's
// group comes last and may be empty. Layers are the outermost numbered modules,
// whatever their types: "layers.0", "encoder.block.11".
std::vector<GroupPlan> plan_groups(
    const ShardingConfig& sharding,
    const std::vector<ParameterShape>& parameters);

}  // namespace fsdp

#endif  // CONFIG_EXPLAIN_GROUP_PLAN_H_
