// SPDX-License-Identifier: Apache-2.0
// Muon for sharded parameters: momentum, orthogonalized matrix by matrix, as
// torch.optim.Muon does on whole parameters, with equal results. The ranks of a
// parameter's mesh divide the work: each orthogonalizes whole matrices. One
// all-to-all for each mesh brings it their parts, in bfloat16, and a second one
// returns the updates: together as many bytes as float32 gradients have. A rank
// never holds more than an equal share of the matrices and one.
//
// It is a torch::optim::Optimizer: groups and schedulers work, and checkpoints
// have the names of torch.optim.Muon. For the thread that trains; see
// muon_with_adamw.h for the parameters that are not matrices.
//
//   fsdp::optim::Muon optimizer(matrices, fsdp::optim::MuonOptions(0.02));
#ifndef FSDP_OPTIM_MUON_H_
#define FSDP_OPTIM_MUON_H_

#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/optim/muon_options.h"
#include "torch/optim/optimizer.h"
#include "torch/optim/serialize.h"

namespace fsdp {

class MuonStep;

namespace optim {

class Muon : public torch::optim::Optimizer {
 public:
  // Throws c10::ValueError for options out of range, in the defaults or a
  // group, and for parameters that are not matrices (see MuonOptions::stacked)
  // or not floating-point; no communication.
  explicit Muon(
      const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
      const MuonOptions& defaults = MuonOptions());
  explicit Muon(std::vector<at::Tensor> params,
                const MuonOptions& defaults = MuonOptions());
  ~Muon() override;

  // Collective over the parameters' meshes; the first step over a mesh with
  // several axes makes a group for them, which is collective over all ranks.
  // Parameters without a gradient, on every rank, are left alone. Everything is
  // validated before the first collective. Throws c10::NotImplementedError for
  // a sparse gradient.
  at::Tensor step(LossClosure closure = nullptr) override;

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  template <typename Self, typename Archive>
  static void serialize(Self& self, Archive& archive) {
    torch::optim::serialize<MuonParamState, MuonOptions>(archive, self);
  }

  std::unique_ptr<MuonStep> step_;
};

}  // namespace optim
}  // namespace fsdp

#endif  // FSDP_OPTIM_MUON_H_
