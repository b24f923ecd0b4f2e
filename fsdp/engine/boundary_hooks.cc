// SPDX-License-Identifier: Apache-2.0
// Stores the boundary hooks of each module.
// Tested by tests/fsdp/parallel/tensor/styles_test.cc.
#include "fsdp/engine/boundary_hooks.h"

#include <unordered_map>
#include <utility>

namespace fsdp {
namespace {

struct Entry {
  // shows whether the address is reused
  std::weak_ptr<torch::nn::Module> module;
  std::shared_ptr<const BoundaryHooks> hooks;
};

std::unordered_map<const torch::nn::Module*, Entry>& Entries() {
  static auto* entries =
      new std::unordered_map<const torch::nn::Module*, Entry>;
  return *entries;
}

}  // namespace

void SetBoundaryHooks(const std::shared_ptr<torch::nn::Module>& module,
                      BoundaryHooks hooks) {
  std::erase_if(Entries(), [](const auto& entry) {
    return entry.second.module.expired();
  });
  Entries()[module.get()] = {
      module, std::make_shared<const BoundaryHooks>(std::move(hooks))};
}

std::shared_ptr<const BoundaryHooks> FindBoundaryHooks(
    const torch::nn::Module& module) {
  if (Entries().empty()) return nullptr;
  const auto found = Entries().find(&module);
  if (found == Entries().end() || found->second.module.expired()) {
    return nullptr;
  }
  return found->second.hooks;
}

}  // namespace fsdp
