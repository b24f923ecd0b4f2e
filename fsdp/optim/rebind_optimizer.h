// SPDX-License-Identifier: Apache-2.0
// rebind_optimizer: makes an optimizer that was built from a module's
// parameters before fully_shard step the shards. Hyperparameters and groups
// stay; parameters are found again by name. For the thread that trains.
//
//   torch::optim::AdamW optimizer(model->parameters(), 3e-4);
//   const auto names = fsdp::remember_parameters(optimizer, *model);
//   fsdp::fully_shard(model, options);
//   fsdp::rebind_optimizer(optimizer, *model, names);
#ifndef FSDP_OPTIM_REBIND_OPTIMIZER_H_
#define FSDP_OPTIM_REBIND_OPTIMIZER_H_

#include <string>
#include <vector>

#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

// For each group in an optimizer: the parameters' names, in order.
using RememberedParameters = std::vector<std::vector<std::string>>;

// Call it before sharding. Throws c10::ValueError, with names, for a parameter
// that is not the module's, and for one that has state, because a whole
// parameter's moments are not a shard's: if the optimizer has already stepped,
// build a new one and load its state from a checkpoint.
RememberedParameters remember_parameters(
    const torch::optim::Optimizer& optimizer, const torch::nn::Module& module);

// Call it after sharding. Throws c10::ValueError, and changes nothing, when the
// groups are not the remembered ones, or the module lacks a name.
void rebind_optimizer(torch::optim::Optimizer& optimizer,
                      const torch::nn::Module& module,
                      const RememberedParameters& names);

}  // namespace fsdp

#endif  // FSDP_OPTIM_REBIND_OPTIMIZER_H_
