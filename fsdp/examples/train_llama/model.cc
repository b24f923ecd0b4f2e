// SPDX-License-Identifier: Apache-2.0
// Builds and runs the model, and draws the weights.
//
// Tested by tests/fsdp/examples/train_llama_test.cc.
#include "fsdp/examples/train_llama/model.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/outer.h"
#include "ATen/ops/pow.h"
#include "ATen/ops/rms_norm.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "ATen/ops/silu.h"
#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "c10/util/Exception.h"
#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/parallel/pipeline/keep_modules.h"

namespace llama {
namespace {

torch::nn::Linear MakeLinear(int64_t in_features, int64_t out_features) {
  return torch::nn::Linear(
      torch::nn::LinearOptions(in_features, out_features).bias(false));
}

// A token's experts share the output by their scores, as in Mixtral; the bias
// on scores evens out their loads.
fsdp::MoEArgs MakeMoEArgs(const ModelOptions& options) {
  return {.router = {.num_experts = options.num_experts,
                     .top_k = options.top_k,
                     .score_func = fsdp::ScoreFunction::kSoftmax,
                     .route_norm = true},
          .num_shared_experts = 0,
          .score_before_experts = false};
}

// Rotates each pair (x[i], x[i + half]) by the angle for the position.
at::Tensor Rotate(const at::Tensor& x, const Rotary& rotary) {
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  const at::Tensor turned = at::cat({-halves[1], halves[0]}, -1);
  return x * rotary.cos.to(x.scalar_type()) +
         turned * rotary.sin.to(x.scalar_type());
}

}  // namespace

absl::Status CheckOptions(const ModelOptions& options) {
  for (const auto& [name, value] :
       {std::pair("vocab-size", options.vocab_size),
        std::pair("dim", options.dim), std::pair("layers", options.num_layers),
        std::pair("heads", options.num_heads),
        std::pair("kv-heads", options.num_kv_heads),
        std::pair("ffn-dim", options.ffn_dim)}) {
    if (value <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is ", value, ", not positive"));
    }
  }
  if (options.dim % (2 * options.num_heads) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("dim is ", options.dim, ", not a multiple of twice the ",
                     options.num_heads, " heads"));
  }
  if (options.num_heads % options.num_kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("heads is ", options.num_heads,
                     ", not a multiple of kv-heads, ", options.num_kv_heads));
  }
  if (options.num_experts > 0 && options.top_k > options.num_experts) {
    return absl::InvalidArgumentError(
        absl::StrCat("top-k is ", options.top_k, ", more than the ",
                     options.num_experts, " experts"));
  }
  return absl::OkStatus();
}

Rotary MakeRotary(const ModelOptions& options, int64_t seq_len,
                  const at::TensorOptions& tensor_options) {
  const int64_t head_dim = options.dim / options.num_heads;
  const at::TensorOptions exact = tensor_options.dtype(at::kDouble);
  const at::Tensor exponents = at::arange(0, head_dim, 2, exact) / head_dim;
  const at::Tensor frequencies = at::pow(options.rope_theta, -exponents);
  const at::Tensor half = at::outer(at::arange(0, seq_len, exact), frequencies);
  const at::Tensor angles = at::cat({half, half}, -1);
  return {.cos = angles.cos().to(tensor_options.dtype()),
          .sin = angles.sin().to(tensor_options.dtype())};
}

RmsNormImpl::RmsNormImpl(int64_t dim, double eps) : dim_(dim), eps_(eps) {
  reset();
}

void RmsNormImpl::reset() {
  weight = register_parameter("weight", at::ones({dim_}));
}

at::Tensor RmsNormImpl::forward(const at::Tensor& x) {
  return at::rms_norm(x, {dim_}, weight, eps_);
}

AttentionImpl::AttentionImpl(const ModelOptions& options)
    : num_heads_(options.num_heads), num_kv_heads_(options.num_kv_heads) {
  const int64_t kv_dim = options.dim / num_heads_ * num_kv_heads_;
  q_proj = register_module("q_proj", MakeLinear(options.dim, options.dim));
  k_proj = register_module("k_proj", MakeLinear(options.dim, kv_dim));
  v_proj = register_module("v_proj", MakeLinear(options.dim, kv_dim));
  o_proj = register_module("o_proj", MakeLinear(options.dim, options.dim));
}

at::Tensor AttentionImpl::forward(const at::Tensor& x, const Rotary& rotary) {
  // [batch, seq_len, heads * head_dim] to [batch, heads, seq_len, head_dim].
  const auto split = [&x](const at::Tensor& projected, int64_t num_heads) {
    return projected.view({x.size(0), x.size(1), num_heads, -1})
        .transpose(1, 2);
  };
  const at::Tensor q = Rotate(split(q_proj(x), num_heads_), rotary);
  const at::Tensor k = Rotate(split(k_proj(x), num_kv_heads_), rotary);
  const at::Tensor v = split(v_proj(x), num_kv_heads_);
  const at::Tensor attended = at::scaled_dot_product_attention(
      q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true,
      /*scale=*/std::nullopt, /*enable_gqa=*/num_kv_heads_ != num_heads_);
  return o_proj(attended.transpose(1, 2).flatten(2));
}

FeedForwardImpl::FeedForwardImpl(const ModelOptions& options) {
  const int64_t dim = options.dim;
  gate_proj = register_module("gate_proj", MakeLinear(dim, options.ffn_dim));
  up_proj = register_module("up_proj", MakeLinear(dim, options.ffn_dim));
  down_proj = register_module("down_proj", MakeLinear(options.ffn_dim, dim));
}

at::Tensor FeedForwardImpl::forward(const at::Tensor& x) {
  return down_proj(at::silu(gate_proj(x)) * up_proj(x));
}

BlockImpl::BlockImpl(const ModelOptions& options) {
  input_layernorm = register_module("input_layernorm",
                                    RmsNorm(options.dim, options.norm_eps));
  self_attn = register_module("self_attn", Attention(options));
  post_attention_layernorm = register_module(
      "post_attention_layernorm", RmsNorm(options.dim, options.norm_eps));
  if (options.num_experts == 0) {
    mlp = register_module("mlp", FeedForward(options));
  } else {
    moe = register_module(
        "moe", fsdp::MoE(MakeMoEArgs(options), options.dim, options.ffn_dim));
  }
}

at::Tensor BlockImpl::forward(const at::Tensor& x, const Rotary& rotary) {
  const at::Tensor h = x + self_attn(input_layernorm(x), rotary);
  const at::Tensor normed = post_attention_layernorm(h);
  return h + (moe ? moe(normed) : mlp(normed));
}

LlamaImpl::LlamaImpl(const ModelOptions& options) : options_(options) {
  const absl::Status status = CheckOptions(options);
  TORCH_CHECK_VALUE(status.ok(), std::string(status.message()));
  embed_tokens = register_module(
      "embed_tokens", torch::nn::Embedding(options.vocab_size, options.dim));
  layers = register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < options.num_layers; ++i) {
    layers->push_back(blocks_.emplace(i, Block(options)).first->second.ptr());
  }
  norm = register_module("norm", RmsNorm(options.dim, options.norm_eps));
  if (!options.tied_embeddings) {
    lm_head =
        register_module("lm_head", MakeLinear(options.dim, options.vocab_size));
  }
  fsdp::apply_activation_checkpointing(
      *this, [](const torch::nn::Module& /*block*/) { return false; });
}

bool StageModules::Has(const std::string& name) const {
  return names.empty() || absl::c_linear_search(names, name);
}

at::Tensor LlamaImpl::forward(const at::Tensor& tokens,
                              const StageModules& stage) {
  at::Tensor h =
      embed_tokens && stage.Has("embed_tokens") ? embed_tokens(tokens) : tokens;
  const Rotary rotary = MakeRotary(options_, tokens.size(1), h.options());
  for (auto& [number, block] : blocks_) {
    if (stage.Has(absl::StrCat("layers.", number))) h = block(h, rotary);
  }
  if (norm && stage.Has("norm")) h = norm(h);
  if (options_.tied_embeddings) return at::linear(h, embed_tokens->weight);
  return lm_head && stage.Has("lm_head") ? lm_head(h) : h;
}

void LlamaImpl::KeepModules(const std::vector<std::string>& names) {
  std::erase_if(blocks_, [&](const auto& item) {
    return !absl::c_linear_search(names, absl::StrCat("layers.", item.first));
  });
  fsdp::keep_modules(*this, names, {&embed_tokens, &norm, &lm_head});
}

double InitialStd(const ModelOptions& options, const std::string& name) {
  constexpr double kStd = 0.02;
  const bool ends_branch = name.find("o_proj") != std::string::npos ||
                           name.find("down_proj") != std::string::npos ||
                           name.find("experts.w2") != std::string::npos;
  return ends_branch
             ? kStd / std::sqrt(2.0 * static_cast<double>(options.num_layers))
             : kStd;
}

void InitWeights(const Llama& model, const ModelOptions& options) {
  const c10::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {
    if (item.value().dim() == 1) {
      item.value().fill_(1.0);
    } else {
      item.value().normal_(0.0, InitialStd(options, item.key()));
    }
  }
}

}  // namespace llama
