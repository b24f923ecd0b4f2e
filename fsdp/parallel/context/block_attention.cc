// SPDX-License-Identifier: Apache-2.0
// Calls the kernels for attention, or computes by tiles.
//
// The plain formula: P = exp(scale q k^T - lse) are the softmax's values, and
// out = P v. With D = sum(grad * out) for each query, the gradients are
//   dv = P^T grad,  dS = P * (grad v^T - D),  dq = scale dS k,
//   dk = scale dS^T q
// (FlashAttention, Dao et al. 2022, algorithms 1 and 4). As P takes the lse
// over all keys, each block gives its own share in the gradients.
//
// Tested by tests/fsdp/parallel/context/sequence_attention_test.cc.
#include "fsdp/parallel/context/block_attention.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <tuple>

#include "ATen/Functions.h"
#include "ATen/SDPBackend.h"

namespace fsdp {
namespace {

// The most queries and keys in a tile of the plain formula.
constexpr int64_t kTileRows = 256;
// The kernel for CUDA without tensor cores pads the lse to a multiple of this.
constexpr int64_t kEfficientLseRows = 32;
// The kernel for CUDA with tensor cores takes head sizes that are multiples.
constexpr int64_t kFlashHeadMultiple = 8;

enum class Kernel { kPlain, kFlashCpu, kFlash, kEfficient };

// scaled_dot_product_attention's own choice, as far as the kernel returns the
// lse.
Kernel ChooseKernel(const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v, const BlockForm& form) {
  if (!q.is_cpu() && !q.is_cuda()) return Kernel::kPlain;
  const auto choice = static_cast<at::SDPBackend>(at::_fused_sdp_choice(
      q, k, v, /*attn_mask=*/std::nullopt, /*dropout_p=*/0.0, form.is_causal,
      form.scale, /*enable_gqa=*/q.size(1) != k.size(1)));
  if (choice == at::SDPBackend::efficient_attention) return Kernel::kEfficient;
  if (choice != at::SDPBackend::flash_attention) return Kernel::kPlain;
  if (q.is_cpu()) return Kernel::kFlashCpu;
  return q.size(3) % kFlashHeadMultiple == 0 ? Kernel::kFlash : Kernel::kPlain;
}

// One tile of the plain formula: [q_begin, q_begin + q_length) by the same of
// keys.
struct TileRange {
  int64_t q_begin;
  int64_t q_length;
  int64_t k_begin;
  int64_t k_length;
};

// The plain formula's tensors in MergeDtype, with a dimension for the heads of
// queries that share one of keys: q is [batch, key heads, group, L, E].
struct PlainInputs {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

at::Tensor Grouped(const at::Tensor& tensor, int64_t key_heads) {
  return tensor.unflatten(1, {key_heads, tensor.size(1) / key_heads});
}

PlainInputs MakePlainInputs(const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v) {
  const c10::ScalarType dtype = MergeDtype(q.scalar_type());
  return {Grouped(q.to(dtype), k.size(1)), k.to(dtype).unsqueeze(2),
          v.to(dtype).unsqueeze(2)};
}

// Calls `visit` for each tile that has anything to compute. Under a causal form
// tiles are equal along both dimensions, so that each query of a tile has a
// key there.
template <typename Visit>
void VisitTiles(int64_t num_queries, int64_t num_keys, bool is_causal,
                const Visit& visit) {
  for (int64_t i = 0; i < num_queries; i += kTileRows) {
    for (int64_t j = 0; j < num_keys; j += kTileRows) {
      if (is_causal && j > i) break;
      visit(TileRange{i, std::min(kTileRows, num_queries - i), j,
                      std::min(kTileRows, num_keys - j)});
    }
  }
}

// scale q k^T of a tile; minus infinity where a causal form uses no key.
at::Tensor TileScores(const PlainInputs& inputs, const TileRange& tile,
                      const BlockForm& form) {
  const at::Tensor q = inputs.q.narrow(3, tile.q_begin, tile.q_length);
  const at::Tensor k = inputs.k.narrow(3, tile.k_begin, tile.k_length);
  at::Tensor scores = at::matmul(q, k.mT()).mul_(form.scale);
  if (form.is_causal && tile.q_begin == tile.k_begin) {
    const at::Tensor later = at::ones({tile.q_length, tile.k_length},
                                      scores.options().dtype(at::kBool))
                                 .triu_(1);
    scores.masked_fill_(later, -std::numeric_limits<double>::infinity());
  }
  return scores;
}

AttendedBlock PlainAttend(const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v, const BlockForm& form) {
  const PlainInputs inputs = MakePlainInputs(q, k, v);
  const AttendedBlock attended{
      at::zeros({q.size(0), q.size(1), q.size(2), v.size(3)},
                inputs.q.options()),
      at::full({q.size(0), q.size(1), q.size(2)},
               -std::numeric_limits<double>::infinity(), inputs.q.options())};
  VisitTiles(q.size(2), k.size(2), form.is_causal, [&](const TileRange& tile) {
    const at::Tensor scores = TileScores(inputs, tile, form);
    const at::Tensor lse = scores.logsumexp(-1);
    const at::Tensor out =
        at::matmul((scores - lse.unsqueeze(-1)).exp_(),
                   inputs.v.narrow(3, tile.k_begin, tile.k_length));
    MergeBlock({attended.out.narrow(2, tile.q_begin, tile.q_length),
                attended.lse.narrow(2, tile.q_begin, tile.q_length)},
               {out.flatten(1, 2), lse.flatten(1, 2)});
  });
  return attended;
}

BlockGradients PlainBackward(const at::Tensor& grad, const at::Tensor& q,
                             const at::Tensor& k, const at::Tensor& v,
                             const AttendedBlock& attended,
                             const BlockForm& form) {
  const PlainInputs inputs = MakePlainInputs(q, k, v);
  const int64_t key_heads = k.size(1);
  const at::Tensor d_out = Grouped(grad.to(inputs.q.scalar_type()), key_heads);
  const at::Tensor lse = Grouped(attended.lse, key_heads).unsqueeze(-1);
  const at::Tensor sums =
      (d_out * Grouped(attended.out, key_heads)).sum(-1, /*keepdim=*/true);
  const at::Tensor dq = at::zeros_like(inputs.q);
  const at::Tensor dk = at::zeros_like(inputs.k);
  const at::Tensor dv = at::zeros_like(inputs.v);
  VisitTiles(q.size(2), k.size(2), form.is_causal, [&](const TileRange& tile) {
    const auto rows = [&](const at::Tensor& tensor) {
      return tensor.narrow(3, tile.q_begin, tile.q_length);
    };
    const auto keys = [&](const at::Tensor& tensor) {
      return tensor.narrow(3, tile.k_begin, tile.k_length);
    };
    const at::Tensor softmax =
        TileScores(inputs, tile, form).sub_(rows(lse)).exp_();
    keys(dv).add_(
        at::matmul(softmax.mT(), rows(d_out)).sum(2, /*keepdim=*/true));
    const at::Tensor d_scores = at::matmul(rows(d_out), keys(inputs.v).mT())
                                    .sub_(rows(sums))
                                    .mul_(softmax)
                                    .mul_(form.scale);
    rows(dq).add_(at::matmul(d_scores, keys(inputs.k)));
    keys(dk).add_(
        at::matmul(d_scores.mT(), rows(inputs.q)).sum(2, /*keepdim=*/true));
  });
  return {dq.flatten(1, 2), dk.squeeze(2), dv.squeeze(2)};
}

// The kernels for CUDA return, and take again, the state of dropout's random
// numbers. Without dropout they do not read it.
at::Tensor NoRandomState(const at::Tensor& like) {
  return at::zeros({2}, like.options().dtype(at::kLong));
}

BlockGradients FlashBackward(const at::Tensor& grad, const at::Tensor& q,
                             const at::Tensor& k, const at::Tensor& v,
                             const AttendedBlock& attended,
                             const BlockForm& form) {
  const at::Tensor state = NoRandomState(q);
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_backward(
      grad, q, k, v, attended.out, attended.lse, /*cum_seq_q=*/{},
      /*cum_seq_k=*/{}, /*max_q=*/q.size(2), /*max_k=*/k.size(2),
      /*dropout_p=*/0.0, form.is_causal, state, state, form.scale);
  return {dq, dk, dv};
}

BlockGradients EfficientBackward(const at::Tensor& grad, const at::Tensor& q,
                                 const at::Tensor& k, const at::Tensor& v,
                                 const AttendedBlock& attended,
                                 const BlockForm& form) {
  const int64_t extra =
      (kEfficientLseRows - q.size(2) % kEfficientLseRows) % kEfficientLseRows;
  const at::Tensor lse = at::constant_pad_nd(
      attended.lse, {0, extra}, std::numeric_limits<double>::infinity());
  const at::Tensor state = NoRandomState(q)[0];
  const auto [dq, dk, dv, unused] =
      at::_scaled_dot_product_efficient_attention_backward(
          grad, q, k, v, /*attn_bias=*/{}, attended.out, lse, state, state,
          /*dropout_p=*/0.0, /*grad_input_mask=*/{true, true, true, false},
          form.is_causal, form.scale);
  return {dq, dk, dv};
}

}  // namespace

c10::ScalarType MergeDtype(c10::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

AttendedBlock AttendBlock(const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v, const BlockForm& form) {
  switch (ChooseKernel(q, k, v, form)) {
    case Kernel::kPlain:
      return PlainAttend(q, k, v, form);
    case Kernel::kFlashCpu: {
      const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
          q, k, v, /*dropout_p=*/0.0, form.is_causal, std::nullopt, form.scale);
      return {out, lse};
    }
    case Kernel::kFlash: {
      const auto results = at::_scaled_dot_product_flash_attention(
          q, k, v, /*dropout_p=*/0.0, form.is_causal,
          /*return_debug_mask=*/false, form.scale);
      return {std::get<0>(results), std::get<1>(results)};
    }
    case Kernel::kEfficient: {
      const auto results = at::_scaled_dot_product_efficient_attention(
          q, k, v, /*attn_bias=*/std::nullopt, /*compute_log_sumexp=*/true,
          /*dropout_p=*/0.0, form.is_causal, form.scale);
      return {std::get<0>(results),
              std::get<1>(results).narrow(2, 0, q.size(2))};
    }
  }
  return {};
}

BlockGradients AttendBlockBackward(const at::Tensor& grad, const at::Tensor& q,
                                   const at::Tensor& k, const at::Tensor& v,
                                   const AttendedBlock& attended,
                                   const BlockForm& form) {
  switch (ChooseKernel(q, k, v, form)) {
    case Kernel::kPlain:
      return PlainBackward(grad, q, k, v, attended, form);
    case Kernel::kFlashCpu: {
      const auto [dq, dk, dv] =
          at::_scaled_dot_product_flash_attention_for_cpu_backward(
              grad, q, k, v, attended.out, attended.lse, /*dropout_p=*/0.0,
              form.is_causal, std::nullopt, form.scale);
      return {dq, dk, dv};
    }
    case Kernel::kFlash:
      return FlashBackward(grad, q, k, v, attended, form);
    case Kernel::kEfficient:
      return EfficientBackward(grad, q, k, v, attended, form);
  }
  return {};
}

void MergeBlock(const AttendedBlock& merged, const AttendedBlock& block) {
  const at::Tensor lse = at::logaddexp(merged.lse, block.lse);
  merged.out.mul_((merged.lse - lse).exp_().unsqueeze(-1));
  merged.out.addcmul_(block.out.to(merged.out.scalar_type()),
                      (block.lse - lse).exp_().unsqueeze(-1));
  merged.lse.copy_(lse);
}

}  // namespace fsdp
