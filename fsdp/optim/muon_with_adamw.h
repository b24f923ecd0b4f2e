// SPDX-License-Identifier: Apache-2.0
// MuonWithAdamW: one optimizer for a whole model. Muon steps the matrices, and
// AdamW steps everything else: vectors, embeddings, heads. Checkpoints are
// those of PyTorch's two optimizers, saved together:
// get_optimizer_state_dict(model, [muon, adamw]). For the thread that trains.
//
//   fsdp::optim::MuonWithAdamW optimizer(
//       *model, {"embed_tokens.*", "lm_head.*"},
//       {.muon = fsdp::optim::MuonOptions(0.02),
//        .adamw = fsdp::FusedAdamWOptions(3e-4)});
#ifndef FSDP_OPTIM_MUON_WITH_ADAMW_H_
#define FSDP_OPTIM_MUON_WITH_ADAMW_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/optim/fused_adamw.h"
#include "fsdp/optim/muon_options.h"
#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

class MuonStep;

namespace optim {

// Names are globs over parameters' names, in which a star also matches dots:
// "layers.*.experts.w?".
struct MuonWithAdamWOptions {
  MuonOptions muon = MuonOptions();
  FusedAdamWOptions adamw = FusedAdamWOptions();
  // Parameters with three dimensions that are stacks of matrices. Others with
  // three dimensions go to AdamW.
  std::vector<std::string> stacks = {};
  // Fused parameters, and how many rows each of their matrices has.
  std::vector<std::pair<std::string, int64_t>> rows_per_matrix = {};
};

class MuonWithAdamW : public torch::optim::Optimizer {
 public:
  // AdamW gets the parameters that match a glob of `adamw_names`. Of the
  // others, Muon gets the matrices and the stacks, and AdamW gets the rest.
  // Throws c10::ValueError for a glob that matches no parameter, and as Muon
  // and FusedAdamW do.
  MuonWithAdamW(const torch::nn::Module& module,
                const std::vector<std::string>& adamw_names,
                const MuonWithAdamWOptions& options = {});

  // Muon gets the parameters for which `is_for_muon` is true, given the name
  // and the whole parameter's shape; AdamW gets the others. Throws
  // c10::ValueError if one for Muon is no matrix and no stack.
  using Predicate = std::function<bool(const std::string& name,
                                       const std::vector<int64_t>& shape)>;
  template <
      typename Call,
      typename = std::enable_if_t<std::is_invocable_r_v<
          bool, const Call&, const std::string&, const std::vector<int64_t>&>>>
  MuonWithAdamW(const torch::nn::Module& module, const Call& is_for_muon,
                const MuonWithAdamWOptions& options = {})
      : MuonWithAdamW(MakeGroups(module, is_for_muon, options), options) {}
  ~MuonWithAdamW() override;

  // See Muon::step and FusedAdamW::step.
  at::Tensor step(LossClosure closure = nullptr) override;

  // Refused (c10::NotImplementedError): get_optimizer_state_dict has the state.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  MuonWithAdamW(std::vector<torch::optim::OptimizerParamGroup> groups,
                const MuonWithAdamWOptions& options);
  static std::vector<torch::optim::OptimizerParamGroup> MakeGroups(
      const torch::nn::Module& module, const Predicate& is_for_muon,
      const MuonWithAdamWOptions& options);

  std::unique_ptr<MuonStep> step_;
};

}  // namespace optim
}  // namespace fsdp

#endif  // FSDP_OPTIM_MUON_WITH_ADAMW_H_
