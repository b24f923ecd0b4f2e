// SPDX-License-Identifier: Apache-2.0
// MuonStep: Muon's step over an optimizer's groups, for Muon and MuonWithAdamW.
// It steps the groups with MuonOptions and skips all others. For the thread
// that trains, without autograd.
#ifndef FSDP_OPTIM_MUON_STEP_H_
#define FSDP_OPTIM_MUON_STEP_H_

#include <vector>

#include "fsdp/optim/fused_adamw.h"
#include "fsdp/optim/mesh_matrices.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

// Keeps the plans of who orthogonalizes which matrix. They are made again only
// when other parameters have gradients.
class MuonStep {
 public:
  // Collective, see Muon::step. CheckMuonStep has passed.
  void Run(const std::vector<torch::optim::OptimizerParamGroup>& groups,
           OptimizerStates& states);

 private:
  std::vector<SteppedParameter> parameters_;  // of meshes_
  std::vector<MeshMatrices> meshes_;
};

}  // namespace fsdp

#endif  // FSDP_OPTIM_MUON_STEP_H_
