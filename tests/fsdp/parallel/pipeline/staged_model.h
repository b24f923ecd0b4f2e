// SPDX-License-Identifier: Apache-2.0
// A small model that can be split into stages, in plain torch::nn: forward runs
// the modules that are there. For tests.
#ifndef TESTS_FSDP_PARALLEL_PIPELINE_STAGED_MODEL_H_
#define TESTS_FSDP_PARALLEL_PIPELINE_STAGED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/parallel/pipeline/keep_modules.h"
#include "fsdp/parallel/pipeline/module_names.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {

inline constexpr int64_t kVocabulary = 11;
inline constexpr int64_t kDim = 6;

struct StagedLayerImpl : torch::nn::Module {
  StagedLayerImpl() {
    up = register_module("up", torch::nn::Linear(kDim, 2 * kDim));
    down = register_module("down", torch::nn::Linear(2 * kDim, kDim));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return x + down(torch::gelu(up(x)));
  }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(StagedLayer);

struct StagedModelImpl : torch::nn::Module {
  explicit StagedModelImpl(int64_t num_layers) {
    embed = register_module("embed", torch::nn::Embedding(kVocabulary, kDim));
    for (int64_t i = 0; i < num_layers; ++i) layers->push_back(StagedLayer());
    register_module("layers", layers);
    norm = register_module(
        "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kDim})));
    head = register_module("head", torch::nn::Linear(kDim, kVocabulary));
  }
  // Tokens or, on a later stage, activations.
  torch::Tensor forward(const torch::Tensor& tokens) {
    torch::Tensor h = embed ? embed(tokens) : tokens;
    for (const auto& layer : *layers) h = layer->as<StagedLayer>()->forward(h);
    if (norm) h = norm(h);
    return head ? head(h) : h;
  }
  std::vector<ModuleMember> members() { return {&embed, &norm, &head}; }

  torch::nn::Embedding embed{nullptr};
  torch::nn::ModuleList layers;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(StagedModel);

// The same weights in every process.
inline StagedModel WholeModel(int64_t num_layers) {
  torch::manual_seed(20);
  return StagedModel(num_layers);
}

inline std::vector<std::string> StageNames(int64_t stage, int64_t num_stages,
                                           int64_t num_layers) {
  return pipeline_module_names(
      num_stages, num_layers,
      {.inputs = {"embed"},
       .outputs = {"norm", "head"}})[static_cast<size_t>(stage)];
}

// The part of WholeModel that `stage` runs.
inline StagedModel MakeStageModel(int64_t stage, int64_t num_stages,
                                  int64_t num_layers) {
  StagedModel model = WholeModel(num_layers);
  keep_modules(*model, StageNames(stage, num_stages, num_layers),
               model->members());
  return model;
}

// [batch, 4] tokens, and as many targets; the same in every process.
inline torch::Tensor Tokens(int64_t step, int64_t batch) {
  auto generator =
      at::detail::createCPUGenerator(static_cast<uint64_t>(100 + step));
  return torch::randint(0, kVocabulary, {batch, 4}, generator, torch::kLong);
}

inline torch::Tensor TokenLoss(const torch::Tensor& logits,
                               const torch::Tensor& targets) {
  return torch::nn::functional::cross_entropy(
      logits.reshape({-1, logits.size(-1)}), targets.reshape({-1}));
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_PARALLEL_PIPELINE_STAGED_MODEL_H_
