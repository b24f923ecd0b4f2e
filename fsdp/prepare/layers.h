// SPDX-License-Identifier: Apache-2.0
// Finds the modules that a config names: those that become groups, those that
// stay whole, and those that compute activations again. For prepare; on the
// thread that trains. Only CheckpointLayers changes anything.
#ifndef FSDP_PREPARE_LAYERS_H_
#define FSDP_PREPARE_LAYERS_H_

#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/model/train_config.h"
#include "fsdp/module/wrap.h"
#include "fsdp/prepare/prepare_options.h"
#include "torch/nn/module.h"

namespace fsdp {

// The parameters of modules that ignored_modules matches.
absl::StatusOr<std::vector<at::Tensor>> IgnoredParameters(
    const torch::nn::Module& module, const ShardingConfig& config);

// Which modules become groups.
absl::StatusOr<WrapPolicy> WrapPolicyFor(
    const torch::nn::Module& module, const ShardingConfig& config,
    const PrepareOptions& options,
    const std::vector<at::Tensor>& ignored_params);

using ModuleList = std::vector<std::shared_ptr<torch::nn::Module>>;

// The layers that activation_checkpointing names, in the model's order; an
// error when checkpointing cannot be switched on for them.
absl::StatusOr<ModuleList> LayersToCheckpoint(
    torch::nn::Module& module, const ShardingConfig& config,
    const PrepareOptions& options, const WrapPolicy& policy,
    const std::vector<at::Tensor>& ignored_params);

// Switches checkpointing on for `layers`, which are from LayersToCheckpoint.
void CheckpointLayers(torch::nn::Module& module, const ModuleList& layers,
                      const PrepareOptions& options);

// Returns an error for parameters that fully_shard would refuse.
absl::Status CheckParameters(const torch::nn::Module& module,
                             const std::vector<at::Tensor>& ignored_params);

}  // namespace fsdp

#endif  // FSDP_PREPARE_LAYERS_H_
