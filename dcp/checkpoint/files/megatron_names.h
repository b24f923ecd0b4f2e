// SPDX-License-Identifier: Apache-2.0
// The names in a checkpoint of Megatron-core, and what they say. Pure; any
// thread.
// Source: megatron/core/optimizer/distrib_optimizer.py, optimizer.py,
// megatron/core/transformer/transformer_block.py,
// megatron/core/dist_checkpointing/mapping.py (ShardedObject), 0.12 to 0.19.
#ifndef DCP_CHECKPOINT_FILES_MEGATRON_NAMES_H_
#define DCP_CHECKPOINT_FILES_MEGATRON_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace dcp {

// "decoder.layers.mlp.linear_fc1.weight", a tensor of all layers: {"decoder.
// layers.", ".mlp.linear_fc1.weight"}, between which stands the number of a
// layer.
struct StackedName {
  std::string before;
  std::string after;
};
// nullopt for a name without ".layers.", or with the number of a layer.
std::optional<StackedName> SplitStackedName(absl::string_view name);

// "chained_1.optimizer.state.exp_avg.decoder.final_layernorm.weight": the state
// of a parameter.
struct OptimizerName {
  std::string state;      // "exp_avg"
  std::string parameter;  // "decoder.final_layernorm.weight"
  std::string chain;      // "1", or empty if there is one optimizer
};
std::optional<OptimizerName> SplitOptimizerName(absl::string_view name);

// Whether the name is that of a part of an optimizer.
bool IsOptimizerName(absl::string_view name);

// Whether the name is that of a buffer that holds the state of parameters one
// after the other.
bool IsFlatBuffer(absl::string_view name);

// The tensor and pipeline ranks of a checkpoint, from "rng_state/shard_0.1_2.4"
// (offset and shape): "pipeline=2,tensor=4". Empty for another name.
std::string MeshInName(absl::string_view name);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_MEGATRON_NAMES_H_
