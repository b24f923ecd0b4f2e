// SPDX-License-Identifier: Apache-2.0
// A small transformer in plain torch::nn with the difficult cases for sharding
// (rows that do not divide, a parameter that is read directly, attention, no
// dropout), and training for it, sharded or not. Every rank sees a slice of one
// global batch, so that W ranks and one process compute the same averages.
#ifndef TESTS_FSDP_TINY_MODEL_H_
#define TESTS_FSDP_TINY_MODEL_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "fsdp/engine/module_access.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {

struct AttentionImpl : torch::nn::Module {
  AttentionImpl(int64_t dim, int64_t num_heads) : heads(num_heads) {
    qkv = register_module("qkv", torch::nn::Linear(dim, 3 * dim));
    out = register_module("out", torch::nn::Linear(dim, dim));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const int64_t batch = x.size(0), length = x.size(1), dim = x.size(2);
    const torch::Tensor parts =
        qkv(x)
            .view({batch, length, 3, heads, dim / heads})
            .permute({2, 0, 3, 1, 4});
    const torch::Tensor scores =
        torch::softmax(parts[0].matmul(parts[1].transpose(-1, -2)) /
                           std::sqrt(static_cast<double>(dim / heads)),
                       -1);
    return out(
        scores.matmul(parts[2]).transpose(1, 2).reshape({batch, length, dim}));
  }
  int64_t heads;
  torch::nn::Linear qkv{nullptr}, out{nullptr};
};
TORCH_MODULE(Attention);

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t dim) {
    norm = register_module(
        "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim})));
    attention = register_module("attention", Attention(dim, 2));
    mlp = register_module(
        "mlp", torch::nn::Sequential(torch::nn::Linear(dim, 4 * dim),
                                     torch::nn::GELU(),
                                     torch::nn::Linear(4 * dim, dim)));
    scale = register_parameter("scale", torch::ones({3, dim}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor h = x + attention(norm(x));
    return h + mlp->forward(h) * scale.mean(0);
  }
  torch::nn::LayerNorm norm{nullptr};
  Attention attention{nullptr};
  torch::nn::Sequential mlp{nullptr};
  torch::Tensor scale;
};
TORCH_MODULE(Block);

struct TinyModelOptions {
  int64_t vocabulary = 37;
  int64_t dim = 18;
  int64_t num_blocks = 3;
  int64_t length = 7;
  bool tied = false;
};

struct TinyModelImpl : torch::nn::Module {
  explicit TinyModelImpl(const TinyModelOptions& options = {}) {
    tokens = register_module(
        "tokens", torch::nn::Embedding(options.vocabulary, options.dim));
    positions = register_module(
        "positions", torch::nn::Embedding(options.length, options.dim));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int64_t i = 0; i < options.num_blocks; ++i) {
      blocks->push_back(Block(options.dim));
    }
    norm = register_module(
        "norm",
        torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.dim})));
    head = torch::nn::Linear(
        torch::nn::LinearOptions(options.dim, options.vocabulary).bias(false));
    if (options.tied) {
      // Tied weights are one tensor in two slots.
      head->weight = tokens->weight;
      ParameterRegistry(*head)["weight"] = tokens->weight;
    }
    register_module("head", head);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor h = tokens(x) + positions(torch::arange(x.size(1)));
    for (const auto& block : *blocks) h = block->as<Block>()->forward(h);
    return head(norm(h));
  }
  torch::nn::Embedding tokens{nullptr}, positions{nullptr};
  torch::nn::ModuleList blocks{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(TinyModel);

// Tokens of step `step`: [batch, length + 1], the same on every rank.
inline torch::Tensor TinyBatch(int64_t step, int64_t batch = 12,
                               const TinyModelOptions& options = {}) {
  auto generator =
      at::detail::createCPUGenerator(static_cast<uint64_t>(1000 + step));
  return torch::randint(0, options.vocabulary, {batch, options.length + 1},
                        generator, torch::kLong);
}

inline torch::Tensor TinyLoss(TinyModel& model, const torch::Tensor& batch) {
  const torch::Tensor inputs = batch.narrow(1, 0, batch.size(1) - 1);
  const torch::Tensor targets = batch.narrow(1, 1, batch.size(1) - 1);
  const torch::Tensor logits = model->forward(inputs);
  return torch::nn::functional::cross_entropy(
      logits.reshape({-1, logits.size(2)}), targets.reshape({-1}));
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_TINY_MODEL_H_
