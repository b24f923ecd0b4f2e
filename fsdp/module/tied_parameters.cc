// SPDX-License-Identifier: Apache-2.0

#include "fsdp/module/tied_parameters.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "c10/core/TensorImpl.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/module_access.h"

namespace fsdp {
namespace {

using Path = std::vector<std::string>;

// The modules that lead to a parameter.
Path ModulePath(const std::string& name) {
  Path path = absl::StrSplit(name, '.');
  path.pop_back();
  return path;
}

Path CommonPrefix(const Path& a, const Path& b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return Path(a.begin(), ends.first);
}

}  // namespace

std::vector<std::vector<std::string>> find_tied_parameters(
    const torch::nn::Module& module) {
  std::vector<std::vector<std::string>> by_tensor;
  std::unordered_map<const c10::TensorImpl*, size_t> index;
  for (const auto& item : module.named_parameters()) {
    const auto [found, is_new] =
        index.try_emplace(item.value().unsafeGetTensorImpl(), by_tensor.size());
    if (is_new) by_tensor.emplace_back();
    by_tensor[found->second].push_back(item.key());
  }
  std::erase_if(by_tensor, [](const auto& names) { return names.size() < 2; });
  return by_tensor;
}

std::vector<at::Tensor> unique_parameters(const torch::nn::Module& module) {
  std::vector<at::Tensor> unique;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : module.parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) {
      unique.push_back(parameter);
    }
  }
  return unique;
}

std::string lowest_common_parent(const torch::nn::Module& module,
                                 const std::vector<std::string>& names) {
  TORCH_CHECK_VALUE(!names.empty(),
                    "lowest_common_parent: the list of names is empty");
  const auto parameters = module.named_parameters();
  for (const std::string& name : names) {
    TORCH_CHECK_VALUE(parameters.contains(name), "lowest_common_parent: '",
                      name, "' is not a parameter of the ", type_name(module));
  }
  Path common = ModulePath(names.front());
  for (const std::string& name : names) {
    common = CommonPrefix(common, ModulePath(name));
  }
  // The length of the path to the last module on the way that has a forward.
  size_t length = 0;
  const torch::nn::Module* below = &module;
  for (size_t i = 0; i < common.size(); ++i) {
    below = ChildRegistry(*below)[common[i]].get();
    if (!is_container_without_forward(*below)) length = i + 1;
  }
  common.resize(length);
  return absl::StrJoin(common, ".");
}

}  // namespace fsdp
