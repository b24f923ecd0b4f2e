// Tied parameters: one tensor that a module has registered in two places, as
// embedding and output head often share a weight. Two fully_shard calls cannot
// each take it, so whoever chooses modules to shard asks here first. Pure; for
// the thread that trains.
#ifndef FSDP_TIED_PARAMETERS_H_
#define FSDP_TIED_PARAMETERS_H_

#include <string>
#include <vector>

#include "torch/nn/module.h"

namespace fsdp {

// The names of each tensor that has several, in the order of named_parameters.
// A module that is registered twice ties all its parameters. Works on sharded
// modules too.
std::vector<std::vector<std::string>> find_tied_parameters(
    const torch::nn::Module& module);

// The path of the innermost module that holds all these parameters and has a
// forward, thus can be sharded; empty: `module` itself, or no such below it.
// Throws c10::ValueError for no names, or a name that is no parameter.
std::string lowest_common_parent(const torch::nn::Module& module,
                                 const std::vector<std::string>& names);

}  // namespace fsdp

#endif  // FSDP_TIED_PARAMETERS_H_
