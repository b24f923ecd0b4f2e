// SPDX-License-Identifier: Apache-2.0
// BoundaryHooks: functions that another parallelism applies to a module's
// inputs and outputs. They run where the call is visible: see ForwardBoundary
// in fsdp/forward.h. For the thread that trains.
#ifndef FSDP_ENGINE_BOUNDARY_HOOKS_H_
#define FSDP_ENGINE_BOUNDARY_HOOKS_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "ATen/core/Tensor.h"
#include "torch/nn/module.h"

namespace fsdp {

struct BoundaryHooks {
  // Replaces the tensor at `index` among the defined and undefined ones; unset:
  // leaves all as they are.
  std::function<at::Tensor(size_t index, const at::Tensor&)> input = {};
  std::function<at::Tensor(size_t index, const at::Tensor&)> output = {};
};

// Replaces the hooks that `module` had.
void SetBoundaryHooks(const std::shared_ptr<torch::nn::Module>& module,
                      BoundaryHooks hooks);
// Null without hooks.
std::shared_ptr<const BoundaryHooks> FindBoundaryHooks(
    const torch::nn::Module& module);

}  // namespace fsdp

#endif  // FSDP_ENGINE_BOUNDARY_HOOKS_H_
