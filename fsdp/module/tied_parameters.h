// SPDX-License-Identifier: Apache-2.0
// Tied parameters: one tensor that a module has registered in two places, such
// as a weight shared by embedding and output head. Two fully_shard calls cannot
// both take it, so code that chooses modules to shard checks here first. Pure;
// for the thread that trains.
#ifndef FSDP_MODULE_TIED_PARAMETERS_H_
#define FSDP_MODULE_TIED_PARAMETERS_H_

#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "torch/nn/module.h"

namespace fsdp {

// The names for each tensor that has several, in the order of named_parameters.
// A module that is registered twice ties all its parameters. Works on sharded
// modules too.
std::vector<std::vector<std::string>> find_tied_parameters(
    const torch::nn::Module& module);

// module.parameters() with each tensor once, as Python's parameters() lists
// them: for LibTorch's optimizers, which step a tensor once for each time that
// it is listed. In a sharded module they are shards.
std::vector<at::Tensor> unique_parameters(const torch::nn::Module& module);

// The path of the innermost module that holds all these parameters and has a
// forward, so that it can be sharded; empty if that is `module` itself or there
// is none. Throws c10::ValueError for no names, or a name that is not a
// parameter's.
std::string lowest_common_parent(const torch::nn::Module& module,
                                 const std::vector<std::string>& names);

}  // namespace fsdp

#endif  // FSDP_MODULE_TIED_PARAMETERS_H_
