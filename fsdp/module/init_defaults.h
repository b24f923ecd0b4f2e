// SPDX-License-Identifier: Apache-2.0
// default_: initialises a whole model as the constructors of torch::nn modules
// do, by type, with values that do not depend on sharding (init.h). For the
// thread that trains.
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
// seeds come from seed_of(seed, the parameter's name).
using ModuleInit = std::function<bool(
    const std::string& name, torch::nn::Module& module, uint64_t seed)>;

// Initialises parameters and buffers as torch::nn modules do themselves (in
// distribution), like reset_parameters in Python after to_empty. `custom` is
// called first, and the tensors that it initialised stay as they are. Throws
// c10::NotImplementedError when `custom` declines a module that has further
// parameters or buffers in addition to those of a torch::nn module (a loss's
// weights count as such); only tensors that `custom` set have changed then.
void default_(torch::nn::Module& module, uint64_t seed,
              const ModuleInit& custom = {});

}  // namespace fsdp::init

#endif  // FSDP_MODULE_INIT_DEFAULTS_H_
