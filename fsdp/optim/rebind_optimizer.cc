// SPDX-License-Identifier: Apache-2.0

#include "fsdp/optim/rebind_optimizer.h"

#include <cstddef>
#include <utility>

#include "ATen/core/Tensor.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/module/names.h"

namespace fsdp {

RememberedParameters remember_parameters(
    const torch::optim::Optimizer& optimizer, const torch::nn::Module& module) {
  RememberedParameters names = optimizer_parameter_names(optimizer, module);
  const auto& state = optimizer.state();
  const auto& groups = optimizer.param_groups();
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::vector<at::Tensor>& parameters = groups[i].params();
    for (size_t j = 0; j < parameters.size(); ++j) {
      TORCH_CHECK_VALUE(
          state.count(parameters[j].unsafeGetTensorImpl()) == 0,
          "rebind_optimizer: '", names[i][j],
          "' has state in the optimizer, which belongs to the whole "
          "parameter, not to a shard; shard the module before the first step, "
          "and load the state afterwards");
    }
  }
  return names;
}

void rebind_optimizer(torch::optim::Optimizer& optimizer,
                      const torch::nn::Module& module,
                      const RememberedParameters& names) {
  auto& groups = optimizer.param_groups();
  TORCH_CHECK_VALUE(groups.size() == names.size(),
                    "rebind_optimizer: the optimizer has ", groups.size(),
                    " groups, but had ", names.size());
  const auto parameters = module.named_parameters();
  std::vector<std::vector<at::Tensor>> found(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    TORCH_CHECK_VALUE(groups[i].params().size() == names[i].size(),
                      "rebind_optimizer: group ", i, " has ",
                      groups[i].params().size(), " parameters, but had ",
                      names[i].size());
    for (const std::string& name : names[i]) {
      const at::Tensor* parameter = parameters.find(name);
      TORCH_CHECK_VALUE(parameter != nullptr, "rebind_optimizer: '", name,
                        "' is no longer a parameter of the ",
                        type_name(module));
      found[i].push_back(*parameter);
    }
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].params() = std::move(found[i]);
  }
}

}  // namespace fsdp
