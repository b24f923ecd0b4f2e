// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/module_names.h"

#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"

namespace fsdp {
namespace {

void CheckDivision(int64_t num_stages, int64_t num_layers,
                   const PipelineModuleNamesOptions& options) {
  const int64_t cost =
      num_layers + options.input_weight + options.output_weight;
  TORCH_CHECK_VALUE(num_stages <= cost, "a pipeline of ", num_stages,
                    " stages needs at least as many layers, but the model has ",
                    cost, ": ", num_layers, " layers, input_weight ",
                    options.input_weight, " and output_weight ",
                    options.output_weight);
  const int64_t smallest = cost / num_stages;
  TORCH_CHECK_VALUE(options.input_weight <= smallest, "input_weight ",
                    options.input_weight, " exceeds the ", smallest,
                    " layers of the smallest of ", num_stages, " stages");
  TORCH_CHECK_VALUE(options.output_weight <= smallest, "output_weight ",
                    options.output_weight, " exceeds the ", smallest,
                    " layers of the smallest of ", num_stages, " stages");
}

}  // namespace

std::vector<std::vector<std::string>> pipeline_module_names(
    int64_t num_stages, int64_t num_layers,
    const PipelineModuleNamesOptions& options) {
  TORCH_CHECK_VALUE(num_stages >= 1, "a pipeline has at least one stage, not ",
                    num_stages);
  TORCH_CHECK_VALUE(num_layers >= 0 && options.input_weight >= 0 &&
                        options.output_weight >= 0,
                    "a model cannot have ", num_layers,
                    " layers, input_weight ", options.input_weight,
                    " and output_weight ", options.output_weight);
  if (num_stages > 1) CheckDivision(num_stages, num_layers, options);

  const int64_t cost =
      num_layers + options.input_weight + options.output_weight;
  std::vector<std::vector<std::string>> stages(static_cast<size_t>(num_stages));
  stages.front() = options.inputs;
  int64_t next = 0;  // the first layer without a stage
  for (int64_t s = 0; s < num_stages; ++s) {
    int64_t layers = cost / num_stages + (s < cost % num_stages ? 1 : 0);
    if (s == 0) layers -= options.input_weight;
    if (s == num_stages - 1) layers -= options.output_weight;
    for (int64_t end = next + layers; next < end; ++next) {
      stages[static_cast<size_t>(s)].push_back(
          absl::StrCat(options.layers, ".", next));
    }
  }
  stages.back().insert(stages.back().end(), options.outputs.begin(),
                       options.outputs.end());
  return stages;
}

}  // namespace fsdp
