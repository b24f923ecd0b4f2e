// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/parity/gpt.h"

#include <cmath>
#include <memory>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/gelu.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/softmax.h"
#include "fsdp/module/activation_checkpoint.h"

namespace fsdp::testing {
namespace {

torch::nn::Linear MakeLinear(int64_t in_features, int64_t out_features) {
  return torch::nn::Linear(
      torch::nn::LinearOptions(in_features, out_features).bias(false));
}

torch::nn::LayerNorm MakeNorm(int64_t dim) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim}));
}

}  // namespace

GptAttentionImpl::GptAttentionImpl(int64_t dim, int64_t num_heads)
    : num_heads_(num_heads) {
  qkv = register_module("qkv", MakeLinear(dim, 3 * dim));
  out = register_module("out", MakeLinear(dim, dim));
}

at::Tensor GptAttentionImpl::forward(const at::Tensor& x) {
  const int64_t dim = x.size(2);
  const std::vector<at::Tensor> qkv_heads =
      qkv(x)
          .view({x.size(0), x.size(1), 3, num_heads_, dim / num_heads_})
          .permute({2, 0, 3, 1, 4})
          .unbind(0);
  const double scale =
      std::sqrt(static_cast<double>(dim) / static_cast<double>(num_heads_));
  const at::Tensor weights = at::softmax(
      qkv_heads[0].matmul(qkv_heads[1].transpose(-1, -2)) / scale, -1);
  const at::Tensor mixed = weights.matmul(qkv_heads[2]).transpose(1, 2);
  return out(mixed.reshape({x.size(0), x.size(1), dim}));
}

GptBlockImpl::GptBlockImpl(int64_t dim, int64_t num_heads) {
  scale = register_parameter("scale", at::ones({3, dim}));
  norm1 = register_module("norm1", MakeNorm(dim));
  attn = register_module("attn", GptAttention(dim, num_heads));
  norm2 = register_module("norm2", MakeNorm(dim));
  up = register_module("up", MakeLinear(dim, 4 * dim));
  down = register_module("down", MakeLinear(4 * dim, dim));
}

at::Tensor GptBlockImpl::forward(const at::Tensor& x) {
  const at::Tensor h = x + attn(norm1(x));
  return h + down(at::gelu(up(norm2(h)))) * scale.mean(0);
}

GptImpl::GptImpl(bool checkpoint_activations)
    : checkpoint_activations_(checkpoint_activations) {
  tok = register_module("tok", torch::nn::Embedding(kVocabSize, kDim));
  pos = register_module("pos", torch::nn::Embedding(kSeqLen, kDim));
  layers = register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < kNumLayers; ++i) layers->push_back(GptBlock(kDim, 2));
  norm = register_module("norm", MakeNorm(kDim));
  head = register_module("head", MakeLinear(kDim, kVocabSize));
}

at::Tensor GptImpl::forward(const at::Tensor& tokens) {
  at::Tensor h = tok(tokens) + pos(at::arange(tokens.size(1)));
  for (const std::shared_ptr<torch::nn::Module>& layer : *layers) {
    GptBlockImpl* block = layer->as<GptBlock>();
    const auto run = [block](const at::Tensor& x) { return block->forward(x); };
    h = checkpoint_activations_ ? fsdp::checkpoint(run, h) : run(h);
  }
  return head(norm(h));
}

}  // namespace fsdp::testing
