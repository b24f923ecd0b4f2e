// SPDX-License-Identifier: Apache-2.0
// A small Llama, plans for it, and the check that it trains on several ranks as
// in one process. In float64 (StartRankInDouble).
#ifndef TESTS_FSDP_PARALLEL_LLAMA_H_
#define TESTS_FSDP_PARALLEL_LLAMA_H_

#include <cstdint>
#include <functional>

#include "fsdp/examples/train_llama/model.h"
#include "fsdp/fully_shard.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "gtest/gtest.h"
#include "torch/nn.h"
#include "torch/optim/adamw.h"
#include "torch/types.h"

namespace fsdp::testing {

inline constexpr int64_t kVocab = 24;

inline llama::ModelOptions Options(bool tied = false) {
  return {.vocab_size = kVocab,
          .dim = 16,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .ffn_dim = 20,
          .tied_embeddings = tied};
}

inline llama::Llama MakeLlama(bool tied = false) {
  torch::manual_seed(3);
  llama::Llama model(Options(tied));
  llama::InitWeights(model, Options(tied));
  return model;
}

inline torch::Tensor MakeTokens(int64_t step, int64_t seq_len = 8) {
  const torch::Tensor place = torch::arange(4 * (seq_len + 1));
  return (place * place * 3 + place + 5 * step)
      .remainder(kVocab)
      .view({4, seq_len + 1});
}

// How a rank gives its rows in the batch, [rows, seq_len] each, to the model.
using Prepare =
    std::function<void(torch::Tensor& inputs, torch::Tensor& targets)>;

inline torch::Tensor ComputeLoss(llama::Llama& model,
                                 const torch::Tensor& tokens,
                                 const Prepare& prepare = {}) {
  const int64_t last = tokens.size(1) - 1;
  torch::Tensor inputs = tokens.narrow(1, 0, last).contiguous();
  torch::Tensor targets = tokens.narrow(1, 1, last).contiguous();
  if (prepare) prepare(inputs, targets);
  return torch::nn::functional::cross_entropy(
      model->forward(inputs).flatten(0, 1), targets.flatten());
}

inline ParallelizePlan TensorPlan() {
  return {{"embed_tokens", RowwiseParallel()},
          {"layers.*.self_attn.[qkv]_proj", ColwiseParallel()},
          {"layers.*.self_attn.o_proj", RowwiseParallel()},
          {"layers.*.mlp.{gate,up}_proj", ColwiseParallel()},
          {"layers.*.mlp.down_proj", RowwiseParallel()},
          {"lm_head", ColwiseParallel({.output_layouts = Replicate()})}};
}

inline ParallelizePlan SequencePlan() {
  const ParallelStyleOptions scatter{.output_layouts = Shard(1)};
  return {{"embed_tokens", RowwiseParallel(scatter)},
          {"layers.*.self_attn.[qkv]_proj", ColwiseParallel()},
          {"layers.*.self_attn.o_proj", RowwiseParallel(scatter)},
          {"layers.*.mlp.{gate,up}_proj", ColwiseParallel()},
          {"layers.*.mlp.down_proj", RowwiseParallel(scatter)},
          {"layers.*.*_layernorm", SequenceParallel()},
          {"norm", SequenceParallel()},
          {"lm_head", ColwiseParallel()}};
}

// Trains `model` on rows [begin, begin + rows) in each batch, and the same
// model in one process, with AdamW and clipping.
inline void ExpectTrainsAsOne(llama::Llama model, llama::Llama whole,
                              int64_t begin, int64_t rows, int64_t seq_len = 8,
                              const Prepare& prepare = {}) {
  torch::optim::AdamW step(model->parameters(), 1e-2);
  torch::optim::AdamW reference_step(whole->parameters(), 1e-2);
  const auto expected = whole->named_parameters();
  for (int i = 0; i < 3; ++i) {
    const torch::Tensor tokens = MakeTokens(i, seq_len);
    step.zero_grad();
    reference_step.zero_grad();
    const torch::Tensor loss =
        ComputeLoss(model, tokens.narrow(0, begin, rows).contiguous(), prepare);
    loss.backward();
    const torch::Tensor reference = ComputeLoss(whole, tokens);
    reference.backward();
    if (rows == tokens.size(0)) {
      EXPECT_NEAR(full_tensor(loss).item<double>(), reference.item<double>(),
                  1e-12);
    }
    for (const auto& item : model->named_parameters()) {
      const auto parameter = dtensor_of(item.value());
      const torch::Tensor gradient = parameter.has_value()
                                         ? parameter->grad()->full_tensor()
                                         : item.value().grad();
      EXPECT_TRUE(
          torch::allclose(gradient, expected[item.key()].grad(), 1e-10, 1e-13))
          << item.key() << " in step " << i;
    }
    const double norm =
        clip_grad_norm_(model->parameters(), 0.5).item<double>();
    EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(whole->parameters(), 0.5),
                norm, 1e-10);
    step.step();
    reference_step.step();
  }
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_PARALLEL_LLAMA_H_
