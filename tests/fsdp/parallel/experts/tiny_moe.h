// SPDX-License-Identifier: Apache-2.0
// A tiny mixture of experts with weights and tokens by a formula, so that
// PyTorch trains the same one. For tests.
#ifndef TESTS_FSDP_PARALLEL_EXPERTS_TINY_MOE_H_
#define TESTS_FSDP_PARALLEL_EXPERTS_TINY_MOE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/parallel_dims.h"
#include "fsdp/parallel/experts/expert_parallel.h"
#include "fsdp/parallel/experts/moe.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {

inline constexpr int64_t kVocab = 32, kDim = 16, kHidden = 12, kTokens = 24;
inline constexpr int64_t kLayers = 2;

// Four experts, two for a token, and nothing else.
inline MoEArgs PlainArgs() {
  return {.router = {.num_experts = 4,
                     .top_k = 2,
                     .score_func = ScoreFunction::kSoftmax},
          .num_shared_experts = 0,
          .score_before_experts = false,
          .load_balance_coeff = {}};
}

struct RmsNormImpl : torch::nn::Module {
  RmsNormImpl() { weight = register_parameter("weight", torch::ones({kDim})); }
  at::Tensor forward(const at::Tensor& x) {
    return torch::rms_norm(x, {kDim}, weight, 1e-5);
  }
  at::Tensor weight;
};
TORCH_MODULE(RmsNorm);

struct MoELayerImpl : torch::nn::Module {
  explicit MoELayerImpl(const MoEArgs& args) {
    norm = register_module("norm", RmsNorm());
    moe = register_module("moe", MoE(args, kDim, kHidden));
  }
  at::Tensor forward(const at::Tensor& h) { return h + moe(norm(h)); }
  RmsNorm norm{nullptr};
  MoE moe{nullptr};
};
TORCH_MODULE(MoELayer);

struct TinyMoEImpl : torch::nn::Module {
  explicit TinyMoEImpl(const MoEArgs& args = PlainArgs()) {
    embed = register_module("embed", torch::nn::Embedding(kVocab, kDim));
    layers = register_module("layers", torch::nn::ModuleList());
    for (int64_t i = 0; i < kLayers; ++i) layers->push_back(MoELayer(args));
    head = register_module(
        "head",
        torch::nn::Linear(torch::nn::LinearOptions(kDim, kVocab).bias(false)));
    to(at::kDouble);
    FillByFormula();
  }
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor h = embed(tokens);
    for (int64_t i = 0; i < kLayers; ++i) h = layer(i).forward(h);
    return head(h);
  }
  MoELayerImpl& layer(int64_t i) { return *layers[i]->as<MoELayerImpl>(); }

  torch::nn::Embedding embed{nullptr};
  torch::nn::ModuleList layers{nullptr};
  torch::nn::Linear head{nullptr};

 private:
  // Each weight is a piece of a sine, in the order of names.
  void FillByFormula() {
    const torch::NoGradGuard no_grad;
    std::vector<std::string> names = {"embed.weight"};
    for (int64_t i = 0; i < kLayers; ++i) {
      for (const char* name :
           {"norm.weight", "moe.router.gate.weight", "moe.experts.w1",
            "moe.experts.w2", "moe.experts.w3"}) {
        names.push_back("layers." + std::to_string(i) + "." + name);
      }
    }
    names.emplace_back("head.weight");
    const auto parameters = named_parameters();
    for (const auto& item : parameters) {
      const bool is_shared = item.key().find("shared") != std::string::npos;
      if (is_shared) names.push_back(item.key());
    }
    for (size_t t = 0; t < names.size(); ++t) {
      at::Tensor weight = parameters[names[t]];
      const at::Tensor wave =
          torch::sin(0.37 * torch::arange(weight.numel(), at::kDouble) +
                     1.7 * static_cast<double>(t))
              .view(weight.sizes());
      const bool is_norm = names[t].find("norm") != std::string::npos;
      const bool is_gate = names[t].find("gate") != std::string::npos;
      weight.copy_(is_norm ? 1 + 0.1 * wave : (is_gate ? 0.9 : 0.4) * wave);
    }
  }
};
TORCH_MODULE(TinyMoE);

// A step's tokens `first` to `first + count`, and the tokens that follow them.
struct Batch {
  at::Tensor tokens;
  at::Tensor targets;
};
inline Batch MakeBatch(int64_t step, int64_t first, int64_t count) {
  const at::Tensor i = torch::arange(first, first + count);
  return {.tokens = (3 * i * i + 5 * i + 7 * step).remainder(kVocab),
          .targets = (i * 11 + step).remainder(kVocab)};
}

inline at::Tensor ComputeLoss(TinyMoE& model, const Batch& batch) {
  return torch::nn::functional::cross_entropy(model(batch.tokens),
                                              batch.targets);
}

// Cuts and shards the model as `dims` say: with expert parallelism, experts
// apart from the rest.
inline void ShardMoE(TinyMoE& model, const ParallelDims& dims) {
  parallelize_experts(*model, dims);
  std::vector<std::string> axes = {"fsdp"};
  if (dims.degrees().dp_replicate > 1)
    axes.insert(axes.begin(), "dp_replicate");
  const FullyShardOptions dense{.mesh = dims.get_mesh(axes)};
  std::vector<std::shared_ptr<torch::nn::Module>> blocks;
  for (const auto& block : *model->layers) {
    if (dims.degrees().ep > 1) fully_shard_experts(*block, dims);
    fully_shard(block, dense);
    blocks.push_back(block);
  }
  fully_shard(model, dense);
  prefetch_blocks(blocks);
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_PARALLEL_EXPERTS_TINY_MOE_H_
