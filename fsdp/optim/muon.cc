// SPDX-License-Identifier: Apache-2.0

#include "fsdp/optim/muon.h"

#include <utility>

#include "ATen/core/grad_mode.h"
#include "fsdp/optim/muon_checks.h"
#include "fsdp/optim/muon_step.h"
#include "fsdp/optim/step_checks.h"
#include "torch/serialize/archive.h"

namespace fsdp::optim {

Muon::Muon(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
           const MuonOptions& defaults)
    : Optimizer(EachParameterOnce(param_groups),
                std::make_unique<MuonOptions>(defaults)),
      step_(std::make_unique<MuonStep>()) {
  CheckMuonOptions(defaults);
  CheckMuonGroups(param_groups_);
}

Muon::Muon(std::vector<at::Tensor> params, const MuonOptions& defaults)
    : Muon({torch::optim::OptimizerParamGroup(std::move(params))}, defaults) {}

Muon::~Muon() = default;

at::Tensor Muon::step(LossClosure closure) {
  const at::Tensor loss = ComputeLoss(closure);
  const at::NoGradGuard no_grad;
  CheckMuonStep(param_groups_);
  step_->Run(param_groups_, state_);
  return loss;
}

void Muon::save(torch::serialize::OutputArchive& archive) const {
  serialize(*this, archive);
}

void Muon::load(torch::serialize::InputArchive& archive) {
  serialize(*this, archive);
}

}  // namespace fsdp::optim
