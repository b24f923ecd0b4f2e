// SPDX-License-Identifier: Apache-2.0
// Muon's groups come first, one for each number of rows per matrix; AdamW's
// group is the last.
//
// Tested by tests/fsdp/optim/muon_with_adamw_test.cc.
#include "fsdp/optim/muon_with_adamw.h"

#include <map>
#include <optional>
#include <unordered_set>

#include "ATen/core/grad_mode.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "dcp/base/glob_set.h"
#include "dcp/tensor/box.h"
#include "fsdp/module/names.h"
#include "fsdp/optim/muon_checks.h"
#include "fsdp/optim/muon_step.h"
#include "fsdp/optim/step_checks.h"

namespace fsdp::optim {
namespace {

using torch::optim::OptimizerParamGroup;

struct NamedParameter {
  std::string name;
  at::Tensor tensor;
  std::vector<int64_t> shape;  // the whole parameter's
};

// Each once.
std::vector<NamedParameter> ListParameters(const torch::nn::Module& module) {
  const NameMap names(module);
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<NamedParameter> parameters;
  for (const at::Tensor& tensor : module.parameters()) {
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    parameters.push_back({.name = names.name_of(tensor),
                          .tensor = tensor,
                          .shape = WholeShape(tensor)});
  }
  return parameters;
}

// Throws for a glob that matches no parameter; `option` names it.
void CheckGlobs(const std::vector<std::string>& globs, const char* option,
                const std::vector<NamedParameter>& parameters) {
  std::vector<bool> matched(globs.size());
  const dcp::GlobSet set(globs);
  for (const NamedParameter& parameter : parameters) {
    set.Match(parameter.name, matched);
  }
  for (size_t i = 0; i < globs.size(); ++i) {
    TORCH_CHECK_VALUE(matched[i], "MuonWithAdamW: ", option, " has \"",
                      globs[i],
                      "\", which matches no parameter's name, such "
                      "as \"",
                      parameters.empty() ? "" : parameters[0].name, "\"");
  }
}

std::vector<std::string> FirstWords(
    const std::vector<std::pair<std::string, int64_t>>& pairs) {
  std::vector<std::string> words;
  for (const auto& [word, number] : pairs) words.push_back(word);
  return words;
}

// Names for AdamW; every other matrix and stack is Muon's.
class ByName {
 public:
  ByName(const torch::nn::Module& module,
         const std::vector<std::string>& adamw_names,
         const MuonWithAdamWOptions& options)
      : adamw_names_(adamw_names), stacks_(options.stacks) {
    CheckGlobs(adamw_names, "adamw_names", ListParameters(module));
  }

  bool operator()(const std::string& name,
                  const std::vector<int64_t>& shape) const {
    if (adamw_names_.MatchesAny(name)) return false;
    return shape.size() == 2 || (shape.size() == 3 && stacks_.MatchesAny(name));
  }

 private:
  dcp::GlobSet adamw_names_;
  dcp::GlobSet stacks_;
};

[[noreturn]] void RefuseArchive(const char* call) {
  C10_THROW_ERROR(
      NotImplementedError,
      absl::StrCat("MuonWithAdamW: ", call,
                   " with an archive of LibTorch; use "
                   "fsdp::get_optimizer_state_dict and fsdp::save"));
}

}  // namespace

std::vector<OptimizerParamGroup> MuonWithAdamW::MakeGroups(
    const torch::nn::Module& module, const Predicate& is_for_muon,
    const MuonWithAdamWOptions& options) {
  const std::vector<NamedParameter> parameters = ListParameters(module);
  const std::vector<std::string> fused = FirstWords(options.rows_per_matrix);
  CheckGlobs(options.stacks, "stacks", parameters);
  CheckGlobs(fused, "rows_per_matrix", parameters);
  const dcp::GlobSet stacks(options.stacks);
  const dcp::GlobSet fused_globs(fused);
  std::vector<at::Tensor> for_adamw;
  using Kind = std::pair<bool, int64_t>;  // stacked, rows per matrix
  std::map<Kind, std::vector<at::Tensor>> for_muon;
  const auto muon_options = [&options](const Kind& kind) {
    return MuonOptions(options.muon)
        .stacked(kind.first)
        .rows_per_matrix(kind.second);
  };
  for (const NamedParameter& parameter : parameters) {
    if (!is_for_muon(parameter.name, parameter.shape)) {
      for_adamw.push_back(parameter.tensor);
      continue;
    }
    const std::optional<size_t> match = fused_globs.LastMatch(parameter.name);
    const Kind kind = {stacks.MatchesAny(parameter.name),
                       match.has_value()
                           ? options.rows_per_matrix[*match].second
                           : options.muon.rows_per_matrix()};
    CheckMuonParameter(parameter.tensor, muon_options(kind),
                       absl::StrCat("parameter '", parameter.name, "'"));
    for_muon[kind].push_back(parameter.tensor);
  }
  std::vector<OptimizerParamGroup> groups;
  for (auto& [kind, tensors] : for_muon) {
    groups.emplace_back(std::move(tensors),
                        std::make_unique<MuonOptions>(muon_options(kind)));
  }
  if (!for_adamw.empty()) {
    groups.emplace_back(std::move(for_adamw),
                        std::make_unique<FusedAdamWOptions>(options.adamw));
  }
  return groups;
}

MuonWithAdamW::MuonWithAdamW(const torch::nn::Module& module,
                             const std::vector<std::string>& adamw_names,
                             const MuonWithAdamWOptions& options)
    : MuonWithAdamW(
          MakeGroups(module, ByName(module, adamw_names, options), options),
          options) {}

MuonWithAdamW::MuonWithAdamW(std::vector<OptimizerParamGroup> groups,
                             const MuonWithAdamWOptions& options)
    : Optimizer(groups, std::make_unique<MuonOptions>(options.muon)),
      step_(std::make_unique<MuonStep>()) {
  CheckMuonOptions(options.muon);
  CheckMuonGroups(param_groups_);
  CheckFusedAdamWGroups(param_groups_);
}

MuonWithAdamW::~MuonWithAdamW() = default;

at::Tensor MuonWithAdamW::step(LossClosure closure) {
  const at::Tensor loss = ComputeLoss(closure);
  const at::NoGradGuard no_grad;
  CheckMuonStep(param_groups_);
  CheckFusedAdamWStep(param_groups_);
  step_->Run(param_groups_, state_);
  StepFusedAdamW(param_groups_, state_);
  return loss;
}

void MuonWithAdamW::save(torch::serialize::OutputArchive& /*archive*/) const {
  RefuseArchive("save");
}

void MuonWithAdamW::load(torch::serialize::InputArchive& /*archive*/) {
  RefuseArchive("load");
}

}  // namespace fsdp::optim
