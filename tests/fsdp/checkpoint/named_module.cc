// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/checkpoint/named_module.h"

#include <utility>

#include "ATen/ops/zeros.h"
#include "absl/strings/str_split.h"

namespace fsdp::testing {

std::shared_ptr<torch::nn::Module> MakeNamedModule(
    const std::vector<NamedTensor>& tensors) {
  const auto root = std::make_shared<torch::nn::Module>();
  for (const NamedTensor& tensor : tensors) {
    std::vector<std::string> path = absl::StrSplit(tensor.name, '.');
    const std::string last = std::move(path.back());
    path.pop_back();
    std::shared_ptr<torch::nn::Module> module = root;
    for (const std::string& child : path) {
      const auto children = module->named_children();
      module = children.contains(child)
                   ? children[child]
                   : module->register_module(
                         child, std::make_shared<torch::nn::Module>());
    }
    if (tensor.is_buffer) {
      module->register_buffer(last, at::zeros(tensor.shape, at::kLong));
    } else {
      module->register_parameter(last, at::zeros(tensor.shape),
                                 tensor.is_trained);
    }
  }
  return root;
}

}  // namespace fsdp::testing
