// SPDX-License-Identifier: Apache-2.0
// Tested by tests/fsdp/optim/muon_test.cc.
#include "fsdp/optim/muon_checks.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "dcp/tensor/box.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/optim/step_checks.h"

namespace fsdp {

using optim::MuonOptions;
using torch::optim::OptimizerParamGroup;

namespace {

std::string PlaceInGroups(size_t group, size_t index) {
  return absl::StrCat("parameter ", index, " of group ", group);
}

}  // namespace

const MuonOptions* FindMuonOptions(const OptimizerParamGroup& group) {
  return dynamic_cast<const MuonOptions*>(&group.options());
}

std::vector<int64_t> WholeShape(const at::Tensor& parameter) {
  const std::optional<DTensor> sharded = dtensor_of(parameter);
  return sharded.has_value() ? sharded->shape() : parameter.sizes().vec();
}

void CheckMuonOptions(const MuonOptions& options) {
  TORCH_CHECK_VALUE(options.lr() >= 0, "Muon: lr ", options.lr(),
                    " is below 0");
  TORCH_CHECK_VALUE(options.weight_decay() >= 0, "Muon: weight_decay ",
                    options.weight_decay(), " is below 0");
  TORCH_CHECK_VALUE(options.momentum() >= 0, "Muon: momentum ",
                    options.momentum(), " is below 0");
  TORCH_CHECK_VALUE(options.ns_steps() >= 0 && options.ns_steps() < 100,
                    "Muon: ns_steps ", options.ns_steps(),
                    " must be at least 0 and below 100");
  TORCH_CHECK_VALUE(options.rows_per_matrix() >= 0, "Muon: rows_per_matrix ",
                    options.rows_per_matrix(), " is below 0");
  const std::optional<std::string>& rule = options.adjust_lr_fn();
  TORCH_CHECK_VALUE(!rule.has_value() || optim::is_adjust_lr_fn(*rule),
                    "Muon: adjust_lr_fn \"", rule.value_or(""),
                    "\" is not \"original\", \"match_rms_adamw\" or "
                    "\"spectral_unclamped\"");
}

void CheckMuonParameter(const at::Tensor& parameter, const MuonOptions& options,
                        const std::string& where) {
  TORCH_CHECK_VALUE(c10::isFloatingType(parameter.scalar_type()),
                    "Muon: ", where, " is ", parameter.scalar_type(),
                    "; Muon takes floating-point parameters");
  const std::vector<int64_t> shape = WholeShape(parameter);
  const std::string text = dcp::ShapeToString(shape);
  TORCH_CHECK_VALUE(
      shape.size() == 2 || shape.size() == 3, "Muon: ", where, " has shape ",
      text, " and ", shape.size(),
      " dimensions; Muon takes matrices, with 2 dimensions, and stacks of "
      "matrices, with 3. Give it to AdamW, as fsdp::optim::MuonWithAdamW does");
  TORCH_CHECK_VALUE(shape.size() == 2 || options.stacked(), "Muon: ", where,
                    " has shape ", text,
                    " and 3 dimensions; if it is a stack of matrices, such as "
                    "experts, say so by MuonOptions::stacked(true), else give "
                    "it to AdamW");
  const int64_t rows = shape[shape.size() - 2];
  TORCH_CHECK_VALUE(
      options.rows_per_matrix() == 0 || rows % options.rows_per_matrix() == 0,
      "Muon: ", where, " has shape ", text, " and ", rows,
      " rows, which rows_per_matrix ", options.rows_per_matrix(),
      " does not divide");
}

void CheckMuonGroups(const std::vector<OptimizerParamGroup>& groups) {
  for (size_t g = 0; g < groups.size(); ++g) {
    const MuonOptions* options = FindMuonOptions(groups[g]);
    if (options == nullptr) continue;
    CheckMuonOptions(*options);
    const std::vector<at::Tensor>& parameters = groups[g].params();
    for (size_t i = 0; i < parameters.size(); ++i) {
      CheckMuonParameter(parameters[i], *options, PlaceInGroups(g, i));
    }
  }
}

void CheckMuonStep(const std::vector<OptimizerParamGroup>& groups) {
  CheckMuonGroups(groups);
  for (const OptimizerParamGroup& group : groups) {
    if (FindMuonOptions(group) == nullptr) continue;
    for (const at::Tensor& parameter : group.params()) {
      CheckReadyToStep(parameter, "Muon");
    }
  }
}

}  // namespace fsdp
