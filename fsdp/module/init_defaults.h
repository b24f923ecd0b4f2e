// SPDX-License-Identifier: Apache-2.0
// default_: initialises a whole model as the modules of torch::nn do in their
// constructors, by type, with values that do not depend on how the model is
// sharded (init.h). For the thread that trains.
#ifndef FSDP_MODULE_INIT_DEFAULTS_H_
#define FSDP_MODULE_INIT_DEFAULTS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "fsdp/module/init.h"
#include "torch/nn/module.h"

namespace fsdp::init {

// Initialises a module's own parameters and buffers (not its children's);
// returns whether it did. `name` is the module's path, empty for the root;
// seeds come from seed_of(seed, name of the parameter).
using ModuleInit = std::function<bool(
    const std::string& name, torch::nn::Module& module, uint64_t seed)>;

// Initialises parameters and buffers as the modules of torch::nn do themselves
// (in distribution), which is what reset_parameters does in Python after
// to_empty. `custom` is called first, and what it initialised stays as it is.
// Throws c10::NotImplementedError, and changes nothing that `custom` did not,
// when `custom` declines a module that has its own parameters or buffers in
// addition to those of a torch::nn module (weights of a loss count as such).
void default_(torch::nn::Module& module, uint64_t seed,
              const ModuleInit& custom = {});

}  // namespace fsdp::init

#endif  // FSDP_MODULE_INIT_DEFAULTS_H_
