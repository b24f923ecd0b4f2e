// SPDX-License-Identifier: Apache-2.0
// A Llama-style language model in plain torch::nn: RMSNorm, rotary position
// embedding, grouped-query attention, SwiGLU or a mixture of such experts,
// linears without bias. It contains nothing about sharding. forward runs the
// modules that are there, so that a pipeline stage may lack some. Parameters
// have the names in published Llama checkpoints. For the thread that trains.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_MODEL_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/parallel/experts/moe.h"
#include "torch/nn/cloneable.h"
#include "torch/nn/modules/container/modulelist.h"
#include "torch/nn/modules/embedding.h"
#include "torch/nn/modules/linear.h"
#include "torch/nn/pimpl.h"

namespace llama {

struct ModelOptions {
  int64_t vocab_size = 256;
  int64_t dim = 128;
  int64_t num_layers = 4;
  int64_t num_heads = 4;
  // Each serves num_heads / num_kv_heads query heads.
  int64_t num_kv_heads = 2;
  // The size of SwiGLU's hidden layer, or of one expert's.
  int64_t ffn_dim = 352;
  // 0: a feed-forward layer in each block; otherwise experts in its place,
  // top_k for each token.
  int64_t num_experts = 0;
  int64_t top_k = 2;
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;
  // The output layer is the token embedding, transposed.
  bool tied_embeddings = false;
};

// Returns InvalidArgument, naming the option, if no model can have these sizes.
absl::Status CheckOptions(const ModelOptions& options);

// cos and sin of the angles for `seq_len` positions: [seq_len, head size].
struct Rotary {
  at::Tensor cos;
  at::Tensor sin;
};
Rotary MakeRotary(const ModelOptions& options, int64_t seq_len,
                  const at::TensorOptions& tensor_options);

class RmsNormImpl : public torch::nn::Cloneable<RmsNormImpl> {
 public:
  RmsNormImpl(int64_t dim, double eps);
  // Fills the weight with ones.
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight;

 private:
  int64_t dim_;
  double eps_;
};
TORCH_MODULE(RmsNorm);

class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const ModelOptions& options);
  // [batch, seq_len, dim] to the same shape; causal.
  at::Tensor forward(const at::Tensor& x, const Rotary& rotary);

  torch::nn::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr},
      o_proj{nullptr};

 private:
  int64_t num_heads_;
  int64_t num_kv_heads_;
};
TORCH_MODULE(Attention);

class FeedForwardImpl : public torch::nn::Module {
 public:
  explicit FeedForwardImpl(const ModelOptions& options);
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Linear gate_proj{nullptr}, up_proj{nullptr}, down_proj{nullptr};
};
TORCH_MODULE(FeedForward);

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const ModelOptions& options);
  at::Tensor forward(const at::Tensor& x, const Rotary& rotary);

  RmsNorm input_layernorm{nullptr};
  Attention self_attn{nullptr};
  RmsNorm post_attention_layernorm{nullptr};
  // One of them is null.
  FeedForward mlp{nullptr};
  fsdp::MoE moe{nullptr};
};
// A block that can run forward again in backward.
using Block = fsdp::Checkpointed<BlockImpl>;

// The modules that a pipeline stage runs, by name; none: all that there are.
struct StageModules {
  std::vector<std::string> names = {};

  bool Has(const std::string& name) const;
};

class LlamaImpl : public torch::nn::Module {
 public:
  // No block is computed again in backward until
  // fsdp::apply_activation_checkpointing says so. Throws c10::ValueError with
  // CheckOptions' message.
  explicit LlamaImpl(const ModelOptions& options);
  const ModelOptions& options() const { return options_; }

  // Tokens [batch, seq_len], int64, to logits [batch, seq_len, vocab_size].
  // Without embed_tokens it takes activations [batch, seq_len, dim] instead;
  // without norm and lm_head it returns such.
  // `stage` is one of several stages on this rank.
  at::Tensor forward(const at::Tensor& tokens, const StageModules& stage = {});

  // Keeps the modules with these names and removes the others, for a pipeline
  // stage; see fsdp::keep_modules. Not with tied embeddings.
  void KeepModules(const std::vector<std::string>& names);

  torch::nn::Embedding embed_tokens{nullptr};
  torch::nn::ModuleList layers;
  RmsNorm norm{nullptr};
  // Null if embeddings are tied.
  torch::nn::Linear lm_head{nullptr};

 private:
  ModelOptions options_;
  std::map<int64_t, Block> blocks_;  // the same as in `layers`, by number
};
TORCH_MODULE(Llama);

// The initial standard deviation for a linear's, an embedding's or the experts'
// weights. The deeper the model, the smaller the residual branches' outputs
// start.
double InitialStd(const ModelOptions& options, const std::string& name);

// Draws an unsharded model's weights from the default generator: normally
// distributed, except for norms, which are ones.
void InitWeights(const Llama& model, const ModelOptions& options);

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_MODEL_H_
