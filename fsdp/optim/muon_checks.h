// SPDX-License-Identifier: Apache-2.0
// Muon's checks of options, parameters and gradients. They throw
// c10::ValueError, which names the parameter or the option, the value, and the
// rule. No communication. For the thread that trains.
#ifndef FSDP_OPTIM_MUON_CHECKS_H_
#define FSDP_OPTIM_MUON_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/optim/muon_options.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

// Null for a group that another optimizer steps.
const optim::MuonOptions* FindMuonOptions(
    const torch::optim::OptimizerParamGroup& group);
// The whole parameter's shape, sharded or not.
std::vector<int64_t> WholeShape(const at::Tensor& parameter);

void CheckMuonOptions(const optim::MuonOptions& options);
// `where` names the parameter in messages: "parameter 'norm.weight'".
void CheckMuonParameter(const at::Tensor& parameter,
                        const optim::MuonOptions& options,
                        const std::string& where);
// The options and parameters in each of Muon's groups.
void CheckMuonGroups(
    const std::vector<torch::optim::OptimizerParamGroup>& groups);
// The same, and the gradients.
void CheckMuonStep(
    const std::vector<torch::optim::OptimizerParamGroup>& groups);

}  // namespace fsdp

#endif  // FSDP_OPTIM_MUON_CHECKS_H_
