// SPDX-License-Identifier: Apache-2.0
// Runs LibTorch's LBFGS on whole copies of sharded parameters.
// Tested by tests/fsdp/training_habits_test.cc.
#include "fsdp/optim/lbfgs.h"

#include <optional>
#include <unordered_set>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/zeros_like.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/mesh_collectives.h"

namespace fsdp {
namespace {

// Each parameter once, because it may have two names.
std::vector<DTensor> CheckedParameters(std::vector<DTensor> parameters) {
  TORCH_CHECK_VALUE(!parameters.empty(), "LBFGS: there are no parameters");
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<DTensor> once;
  for (DTensor& parameter : parameters) {
    TORCH_CHECK_VALUE(
        parameter.device_mesh() == parameters.front().device_mesh(),
        "LBFGS: the parameters lie on several meshes");
    if (seen.insert(parameter.to_local().unsafeGetTensorImpl()).second) {
      once.push_back(parameter);
    }
  }
  return once;
}

std::vector<at::Tensor> WholesLike(const std::vector<DTensor>& parameters) {
  std::vector<at::Tensor> wholes;
  for (const DTensor& parameter : parameters) {
    wholes.push_back(
        at::empty(parameter.shape(), at::TensorOptions(parameter.scalar_type())
                                         .device(parameter.to_local().device()))
            .set_requires_grad(true));
  }
  return wholes;
}

}  // namespace

LBFGS::LBFGS(std::vector<DTensor> parameters,
             const torch::optim::LBFGSOptions& options)
    : parameters_(CheckedParameters(std::move(parameters))),
      wholes_(WholesLike(parameters_)),
      optimizer_(wholes_, options) {}

void LBFGS::zero_grad() {
  for (const DTensor& parameter : parameters_) {
    parameter.to_local().mutable_grad() = at::Tensor();
  }
}

at::Tensor LBFGS::step(const std::function<at::Tensor()>& closure) {
  TORCH_CHECK_VALUE(closure != nullptr, "LBFGS: step needs a closure");
  {
    // The shards may have been changed since the last step.
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      wholes_[i].copy_(parameters_[i].full_tensor());
    }
  }
  const at::Tensor loss =
      optimizer_.step([this, &closure] { return Evaluate(closure); });
  WriteShards();
  return loss;
}

at::Tensor LBFGS::Evaluate(const std::function<at::Tensor()>& closure) {
  WriteShards();
  const at::AutoGradMode with_grad(true);
  const at::Tensor loss = closure();
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const std::optional<DTensor> grad = parameters_[i].grad();
    wholes_[i].mutable_grad() =
        grad.has_value() ? grad->full_tensor() : at::zeros_like(wholes_[i]);
  }
  return AverageOverRanks(loss.detach());
}

void LBFGS::WriteShards() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const DTensor& parameter = parameters_[i];
    const DTensor mine =
        distribute_tensor(wholes_[i].detach(), parameter.device_mesh(),
                          parameter.placements(), std::nullopt);
    at::Tensor shard = parameter.to_local();
    shard.copy_(mine.to_local());
  }
}

at::Tensor LBFGS::AverageOverRanks(const at::Tensor& loss) const {
  const DeviceMesh& mesh = parameters_.front().device_mesh();
  at::Tensor sum = loss.clone();
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    AllReduce(sum, ReduceOp::kSum, mesh.get_group(axis));
    sum.div_(static_cast<double>(mesh.size(axis)));
  }
  return sum;
}

}  // namespace fsdp
