// SPDX-License-Identifier: Apache-2.0
// A small transformer with sizes that no rank count divides: layer norms,
// learned positions, a parameter with three rows used in a mean. The Python
// counterpart is in models.py. For the thread that trains.
#ifndef TESTS_FSDP_PARITY_GPT_H_
#define TESTS_FSDP_PARITY_GPT_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "torch/nn/module.h"
#include "torch/nn/modules/container/modulelist.h"
#include "torch/nn/modules/embedding.h"
#include "torch/nn/modules/linear.h"
#include "torch/nn/modules/normalization.h"
#include "torch/nn/pimpl.h"

namespace fsdp::testing {

class GptAttentionImpl : public torch::nn::Module {
 public:
  GptAttentionImpl(int64_t dim, int64_t num_heads);
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Linear qkv{nullptr}, out{nullptr};

 private:
  int64_t num_heads_;
};
TORCH_MODULE(GptAttention);

class GptBlockImpl : public torch::nn::Module {
 public:
  GptBlockImpl(int64_t dim, int64_t num_heads);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor scale;
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  GptAttention attn{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(GptBlock);

class GptImpl : public torch::nn::Module {
 public:
  static constexpr int64_t kVocabSize = 37;
  static constexpr int64_t kDim = 18;
  static constexpr int64_t kNumLayers = 2;
  static constexpr int64_t kSeqLen = 7;

  explicit GptImpl(bool checkpoint_activations);
  // [batch, kSeqLen] to [batch, kSeqLen, kVocabSize].
  at::Tensor forward(const at::Tensor& tokens);

  torch::nn::Embedding tok{nullptr}, pos{nullptr};
  torch::nn::ModuleList layers;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};

 private:
  bool checkpoint_activations_;
};
TORCH_MODULE(Gpt);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_PARITY_GPT_H_
