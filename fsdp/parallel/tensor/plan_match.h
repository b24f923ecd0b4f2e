// SPDX-License-Identifier: Apache-2.0
// Finds the modules for the names in a plan. Pure; for the thread that trains.
#ifndef FSDP_PARALLEL_TENSOR_PLAN_MATCH_H_
#define FSDP_PARALLEL_TENSOR_PLAN_MATCH_H_

#include <memory>
#include <string>
#include <vector>

#include "torch/nn/module.h"

namespace fsdp {

struct MatchedModule {
  torch::nn::Module* module;
  std::string name;  // below the root; empty for the root
};

// The modules below `root` that `pattern` names, in the order of modules();
// each once.
std::vector<MatchedModule> MatchModules(torch::nn::Module& root,
                                        const std::string& pattern);

// The module name below `root` that is most like `pattern`, for a message;
// empty if there is none.
std::string NearestName(const torch::nn::Module& root,
                        const std::string& pattern);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_TENSOR_PLAN_MATCH_H_
