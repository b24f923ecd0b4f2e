// SPDX-License-Identifier: Apache-2.0
// Tested by tests/fsdp/optim/fused_adamw_test.cc.
#include "fsdp/optim/step_checks.h"

#include <unordered_set>

#include "ATen/core/grad_mode.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/managed_storage.h"

namespace fsdp {

std::vector<torch::optim::OptimizerParamGroup> EachParameterOnce(
    std::vector<torch::optim::OptimizerParamGroup> groups) {
  std::unordered_set<const c10::TensorImpl*> seen;
  for (torch::optim::OptimizerParamGroup& group : groups) {
    std::erase_if(group.params(), [&](const at::Tensor& parameter) {
      return !seen.insert(parameter.unsafeGetTensorImpl()).second;
    });
  }
  return groups;
}

at::Tensor ComputeLoss(const torch::optim::Optimizer::LossClosure& closure) {
  if (!closure) return {};
  const at::AutoGradMode with_grad(true);
  return closure();
}

void CheckReadyToStep(const at::Tensor& parameter, const std::string& who) {
  TORCH_CHECK_VALUE(
      FindManagedStorage(parameter) == nullptr, who, ": a parameter of shape ",
      parameter.sizes(),
      " is the member of a sharded layer, which holds no data to step. "
      "Build the optimizer from module->parameters(), after fully_shard");
  const at::Tensor& grad = parameter.grad();
  if (!grad.defined()) return;
  TORCH_CHECK_NOT_IMPLEMENTED(!grad.is_sparse(), who, ": a gradient is sparse");
  TORCH_CHECK_VALUE(grad.sizes() == parameter.sizes() &&
                        grad.scalar_type() == parameter.scalar_type() &&
                        grad.device() == parameter.device(),
                    who, ": a parameter ", parameter.sizes(), " ",
                    parameter.scalar_type(), " on ", parameter.device(),
                    " has a gradient ", grad.sizes(), " ", grad.scalar_type(),
                    " on ", grad.device());
}

}  // namespace fsdp
