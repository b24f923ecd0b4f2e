// SPDX-License-Identifier: Apache-2.0

#include "fsdp/module/names.h"

#include <unordered_set>

#include "c10/core/TensorImpl.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/managed_storage.h"
#include "fsdp/engine/module_access.h"

namespace fsdp {
namespace {

std::vector<std::string> FirstNames(
    const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  std::vector<std::string> names;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : tensors) {
    if (!item.value().defined()) continue;
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) {
      names.push_back(item.key());
    }
  }
  return names;
}

}  // namespace

std::vector<std::string> parameter_names(const torch::nn::Module& module) {
  return FirstNames(module.named_parameters());
}

std::vector<std::string> buffer_names(const torch::nn::Module& module) {
  return FirstNames(module.named_buffers());
}

NameMap::NameMap(const torch::nn::Module& module) {
  for (const auto& dict : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : dict) {
      if (!item.value().defined()) continue;
      names_.try_emplace(item.value().unsafeGetTensorImpl(), item.key());
      if (const FsdpParam* param = FsdpParam::FindByShard(item.value())) {
        names_.try_emplace(param->leaf().unsafeGetTensorImpl(), item.key());
      }
    }
  }
}

const std::string* NameMap::find(const at::Tensor& tensor) const {
  const auto found = names_.find(tensor.unsafeGetTensorImpl());
  return found == names_.end() ? nullptr : &found->second;
}

const std::string& NameMap::name_of(const at::Tensor& tensor) const {
  const std::string* name = find(tensor);
  TORCH_CHECK_VALUE(name != nullptr, "names: a tensor of sizes ",
                    tensor.defined() ? tensor.sizes() : at::IntArrayRef(),
                    " is not a parameter or buffer of the module");
  return *name;
}

std::vector<std::vector<std::string>> optimizer_parameter_names(
    const torch::optim::Optimizer& optimizer, const torch::nn::Module& module) {
  const NameMap map(module);
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<std::vector<std::string>> groups;
  for (const auto& group : optimizer.param_groups()) {
    std::vector<std::string>& names = groups.emplace_back();
    for (const at::Tensor& parameter : group.params()) {
      const std::string* name = map.find(parameter);
      const ManagedStorage* storage = FindManagedStorage(parameter);
      TORCH_CHECK_VALUE(
          name != nullptr && storage == nullptr, "optimizer: parameter ",
          names.size(), " of group ", groups.size() - 1, ", of sizes ",
          parameter.sizes(), ", is ",
          name == nullptr
              ? "not a parameter of"
              : "a layer's member, not the shard that the optimizer steps, in",
          " the ", type_name(module),
          "; build the optimizer from module->parameters(), after fully_shard");
      TORCH_CHECK_VALUE(
          seen.insert(parameter.unsafeGetTensorImpl()).second,
          "optimizer: the parameter '", *name,
          "' is listed twice, and would be stepped twice. module->parameters() "
          "lists a tied parameter once for each of its names; build the "
          "optimizer from fsdp::unique_parameters(*module)");
      names.push_back(*name);
    }
  }
  return groups;
}

}  // namespace fsdp
