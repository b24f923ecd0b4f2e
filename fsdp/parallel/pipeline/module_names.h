// SPDX-License-Identifier: Apache-2.0
// pipeline_module_names: which of a model's modules go to which pipeline stage,
// by name. The division and the checks are those in TorchTitan 0.2.2
// (generate_llm_fqn_per_model_part in torchtitan/distributed/
// pipeline_parallel.py). Pure; any thread.
#ifndef FSDP_PARALLEL_PIPELINE_MODULE_NAMES_H_
#define FSDP_PARALLEL_PIPELINE_MODULE_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

struct PipelineModuleNamesOptions {
  // The cost of the modules before and after the layers, in layers.
  int64_t input_weight = 1;
  int64_t output_weight = 1;
  // Names below the model: the modules before the layers, the list of layers,
  // and the modules after them.
  std::vector<std::string> inputs = {"tok_embeddings"};
  std::string layers = "layers";
  std::vector<std::string> outputs = {"norm", "output"};
};

// The names of each stage's modules, in the order in which a forward uses them:
// `inputs` on the first stage, `outputs` on the last, and layers "layers.0",
// "layers.1", ... in between, so that stages cost the same, the first ones up
// to one layer more:
//
//   pipeline_module_names(2, 3, {.input_weight = 2, .output_weight = 2})
//     {{"tok_embeddings", "layers.0", "layers.1"},
//      {"layers.2", "norm", "output"}}
//
// A single stage has everything, whatever the weights. Throws c10::ValueError
// for fewer than one stage, a negative layer count or weight, more stages than
// layers and weights together, and a weight above the smallest stage's cost.
std::vector<std::vector<std::string>> pipeline_module_names(
    int64_t num_stages, int64_t num_layers,
    const PipelineModuleNamesOptions& options = {});

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_MODULE_NAMES_H_
