// SPDX-License-Identifier: Apache-2.0
// The names in a Megatron-core checkpoint, and the facts in them. Pure; any
// thread. Source: megatron/core/optimizer/distrib_optimizer.py, optimizer.py,
// megatron/core/transformer/transformer_block.py,
// megatron/core/dist_checkpointing/mapping.py (ShardedObject), 0.12 to 0.19.
#ifndef DCP_CHECKPOINT_FILES_MEGATRON_NAMES_H_
#define DCP_CHECKPOINT_FILES_MEGATRON_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace dcp {

// "decoder.layers.mlp.linear_fc1.weight", a tensor with all layers: {"decoder.
// layers.", ".mlp.linear_fc1.weight"}; a layer's number goes between the two.
struct StackedName {
  std::string before;
  std::string after;
};
// nullopt for a name without ".layers.", or with a layer's number.
std::optional<StackedName> SplitStackedName(absl::string_view name);

// "chained_1.optimizer.state.exp_avg.decoder.final_layernorm.weight": a
// parameter's state.
struct OptimizerName {
  std::string state;      // "exp_avg"
  std::string parameter;  // "decoder.final_layernorm.weight"
  std::string chain;      // "1", or empty if there is one optimizer
};
std::optional<OptimizerName> SplitOptimizerName(absl::string_view name);

// Whether the name belongs to a part of an optimizer.
bool IsOptimizerName(absl::string_view name);

// Whether the name belongs to a buffer that holds the parameters' states one
// after the other.
bool IsFlatBuffer(absl::string_view name);

// The checkpoint's tensor and pipeline ranks, from "rng_state/shard_0.1_2.4"
// (offset and shape): "pipeline=2,tensor=4". Empty for another name.
std::string MeshInName(absl::string_view name);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_MEGATRON_NAMES_H_
