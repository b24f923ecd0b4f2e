// SPDX-License-Identifier: Apache-2.0
// The beginning of a step of this project's optimizers. For the thread that
// trains.
#ifndef FSDP_OPTIM_STEP_CHECKS_H_
#define FSDP_OPTIM_STEP_CHECKS_H_

#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

// module->parameters() lists a tied parameter once for each name.
std::vector<torch::optim::OptimizerParamGroup> EachParameterOnce(
    std::vector<torch::optim::OptimizerParamGroup> groups);

// The closure's result, computed with autograd; undefined without a closure.
at::Tensor ComputeLoss(const torch::optim::Optimizer::LossClosure& closure);

// Throws c10::ValueError when `parameter` is a sharded layer's member, or has a
// gradient of another shape, dtype or device, and c10::NotImplementedError for
// a sparse gradient. `who` begins the message: "FusedAdamW".
void CheckReadyToStep(const at::Tensor& parameter, const std::string& who);

}  // namespace fsdp

#endif  // FSDP_OPTIM_STEP_CHECKS_H_
