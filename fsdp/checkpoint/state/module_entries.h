// SPDX-License-Identifier: Apache-2.0
// The entries that a module has registered, as its state dict lists them: every
// parameter and buffer under each name, in the order of Python's state_dict().
// For the thread that trains.
#ifndef FSDP_CHECKPOINT_STATE_MODULE_ENTRIES_H_
#define FSDP_CHECKPOINT_STATE_MODULE_ENTRIES_H_

#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/mesh/dtensor.h"
#include "torch/nn/module.h"

namespace fsdp {

struct ModuleEntry {
  std::string name;
  at::Tensor tensor;  // as registered: the shard if it is sharded
  bool is_parameter;
};

// For each module: parameters, then buffers, then the children's entries.
std::vector<ModuleEntry> ListEntries(const torch::nn::Module& module);

// The names of `modules` below `root`, each with a trailing dot; the root's is
// empty. Absent if any module is not there.
std::optional<std::vector<std::string>> FindModulePrefixes(
    const torch::nn::Module& root,
    const std::vector<const torch::nn::Module*>& modules);

// Whether fully_shard took any of the parameters.
bool IsSharded(const torch::nn::Module& module);

// How a tensor with the parameter's shape lies on the mesh; absent when the
// parameter is not sharded.
std::optional<DTensorSpec> FindSpec(const at::Tensor& parameter);

// Frees the gathered parameters, so that the next forward gathers the shards as
// they are then.
void DropGathered(torch::nn::Module& module);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_MODULE_ENTRIES_H_
