// SPDX-License-Identifier: Apache-2.0
// Checks the arguments, takes off the cuts of other axes (heads under tensor
// parallelism), and attends with the plain parts.
//
// Tested by tests/fsdp/parallel/context/sequence_attention_test.cc.
#include "fsdp/parallel/spmd/rules/sequence_attention.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "ATen/ops/scaled_dot_product_attention.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/core/ScalarType.h"
#include "c10/util/Exception.h"
#include "fsdp/parallel/spmd/moves.h"
#include "fsdp/parallel/spmd/sharded.h"

namespace fsdp::spmd {
namespace {

// One call's arguments on the axis that cuts the sequence.
struct Attention {
  AxisPtr axis;
  Layout q_layout;
  Layout k_layout;      // of values too
  int64_t num_queries;  // of the whole sequence
  int64_t num_keys;
  bool is_causal;
  bool is_grouped;
  std::optional<double> scale;

  bool is_ring() const {
    return axis->sequence_attention == SequenceAttention::kRing;
  }
};

std::string SizesText(const Sizes& sizes) {
  return absl::StrCat("[", absl::StrJoin(sizes, ", "), "]");
}

const char* MethodText(const Axis& axis) {
  return axis.sequence_attention == SequenceAttention::kRing
             ? "ring attention (context_parallel's method alltoall)"
             : "attention by heads (context_parallel's method ulysses)";
}

// The lengths that ranks on the other axes may have along `dim`.
Sizes PossibleLengths(const at::Tensor& part, int64_t dim) {
  const Sharded* inner = AsSharded(part);
  if (inner == nullptr || !inner->layout.is_shard(dim)) return {part.size(dim)};
  Sizes lengths;
  for (int64_t rank = 0; rank < inner->axis->size; ++rank) {
    lengths.push_back(
        PartLength(part.size(dim), inner->layout, inner->axis->size, rank));
  }
  return lengths;
}

void CheckShapes(const Call& call, const Operand& q, const Operand& k,
                 const Operand& v, const Attention& attention) {
  const char* method = MethodText(*call.axis());
  const int64_t ndim = q.ndim();
  const std::string shapes =
      absl::StrCat("queries ", SizesText(q.sizes()), ", keys ",
                   SizesText(k.sizes()), " and values ", SizesText(v.sizes()));
  TORCH_CHECK_VALUE(ndim >= 3 && k.ndim() == ndim && v.ndim() == ndim, method,
                    " requires [.., heads, sequence, head size], but the call "
                    "has ",
                    shapes);
  TORCH_CHECK_VALUE(q.part().scalar_type() == k.part().scalar_type() &&
                        q.part().scalar_type() == v.part().scalar_type(),
                    method, " requires one dtype, but queries are ",
                    q.part().scalar_type(), ", keys ", k.part().scalar_type(),
                    " and values ", v.part().scalar_type());
  const int64_t heads = ndim - 3;
  bool fits = k.size(-1) == q.size(-1) && k.size(-2) == v.size(-2);
  for (int64_t dim = 0; dim <= heads; ++dim) {
    const bool may_share = dim == heads && attention.is_grouped;
    fits = fits && k.size(dim) == v.size(dim) &&
           (k.size(dim) == q.size(dim) ||
            (may_share && k.size(dim) > 0 && q.size(dim) % k.size(dim) == 0));
  }
  TORCH_CHECK_VALUE(fits, method,
                    " requires equal batches, and heads that are equal or, "
                    "with enable_gqa, a multiple of the keys'; the call has ",
                    shapes);
  TORCH_CHECK_VALUE(q.is_shard(ndim - 2), method,
                    " requires queries that are cut along the sequence, but "
                    "they lie as ",
                    to_string(q.layout()), ", and the keys as ",
                    to_string(k.layout()));
  const bool alike = attention.num_queries == attention.num_keys &&
                     attention.q_layout == attention.k_layout;
  TORCH_CHECK_VALUE(!attention.is_causal || !attention.is_ring() || alike,
                    method,
                    " under is_causal requires as many keys as "
                    "queries, cut alike; there are ",
                    attention.num_queries, " queries that lie as ",
                    to_string(attention.q_layout), ", and ", attention.num_keys,
                    " keys that lie as ", to_string(attention.k_layout));
}

void CheckHeads(const Operand& x, const char* name, const Axis& axis) {
  const int64_t heads = x.ndim() - 3;
  for (const int64_t count : PossibleLengths(x.part(), heads)) {
    TORCH_CHECK_VALUE(count % axis.size == 0, MethodText(axis), " divides the ",
                      count, " heads of ", name, " among ", axis.size,
                      " ranks, which do not divide them; use the method "
                      "alltoall or allgather");
  }
}

void CheckArguments(const Call& call, const Operand& q, const Operand& k,
                    const Operand& v, const Attention& attention) {
  const char* method = MethodText(*call.axis());
  const double dropout = call.arg(kAttentionDropout).toDouble();
  TORCH_CHECK_VALUE(dropout == 0, method,
                    " does not drop attention weights, but dropout_p is ",
                    dropout, "; set it to 0, or use the method allgather");
  const Operand mask = call.operand(kAttentionMask);
  TORCH_CHECK_VALUE(!mask.defined() || !attention.is_ring(), method,
                    " takes no attn_mask, but one of ", SizesText(mask.sizes()),
                    " is given; use is_causal, or the method allgather or "
                    "ulysses");
  TORCH_CHECK_VALUE(!mask.defined() || !attention.is_causal, method,
                    " takes either attn_mask or is_causal, but both are given");
  CheckShapes(call, q, k, v, attention);
  if (attention.is_ring()) return;
  CheckHeads(q, "queries", *call.axis());
  CheckHeads(k, "keys", *call.axis());
}

std::vector<std::vector<RingTile>> Tiles(const Attention& attention) {
  const Axis& axis = *attention.axis;
  const auto pieces = [&](int64_t length, const Layout& layout, int64_t rank) {
    return RankPieces(length, layout.At(0), axis.size, rank);
  };
  const int64_t own = PartLength(attention.num_queries, attention.q_layout,
                                 axis.size, axis.rank);
  std::vector<std::vector<RingTile>> tiles;
  for (int64_t rank = 0; rank < axis.size; ++rank) {
    const int64_t keys =
        PartLength(attention.num_keys, attention.k_layout, axis.size, rank);
    std::vector<RingTile> of_rank;
    if (attention.is_causal && rank != axis.rank) {
      of_rank = CausalTiles(
          pieces(attention.num_queries, attention.q_layout, axis.rank),
          pieces(attention.num_keys, attention.k_layout, rank));
    } else if (own > 0 && keys > 0) {
      of_rank = {{0, own, keys, attention.is_causal}};
    }
    tiles.push_back(std::move(of_rank));
  }
  return tiles;
}

at::Tensor AttendByRing(const Attention& attention, const at::Tensor& q,
                        const at::Tensor& k, const at::Tensor& v) {
  const Axis& axis = *attention.axis;
  RingPlan plan{
      .group = axis.group,
      .description = absl::StrCat(
          "ring attention of ", c10::toString(q.scalar_type()), " queries for ",
          q.size(-3), " heads of ", q.size(-1), ", ", attention.num_queries,
          " by ", attention.num_keys, attention.is_causal ? ", causal" : ""),
      .key_lengths = {},
      .tiles = Tiles(attention),
      .scale = attention.scale.value_or(
          1 / std::sqrt(static_cast<double>(q.size(-1))))};
  for (int64_t rank = 0; rank < axis.size; ++rank) {
    plan.key_lengths.push_back(
        PartLength(attention.num_keys, attention.k_layout, axis.size, rank));
  }
  const auto with_one_batch = [](const at::Tensor& x) {
    const Sizes sizes = x.sizes().vec();
    const size_t heads = sizes.size() - 3;
    return x.reshape({SizesProduct(sizes, 0, heads), sizes[heads],
                      sizes[heads + 1], sizes[heads + 2]});
  };
  const at::Tensor out = RingAttention(with_one_batch(q), with_one_batch(k),
                                       with_one_batch(v), plan);
  Sizes sizes = q.sizes().vec();
  sizes.back() = v.size(-1);
  return out.reshape(sizes);
}

// Each rank gets the whole sequence for some heads, and gives it back.
at::Tensor AttendByHeads(const Attention& attention, const at::Tensor& q,
                         const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& mask) {
  const AxisPtr& axis = attention.axis;
  const int64_t heads_dim = q.dim() - 3;
  const Layout heads = Layout::Shard(heads_dim);
  const auto exchanged = [&](const at::Tensor& x, const Layout& layout,
                             int64_t length) {
    Sizes whole = x.sizes().vec();
    whole[static_cast<size_t>(heads_dim) + 1] = length;
    return Move(x, layout, heads, whole, axis);
  };
  at::Tensor own_mask = mask;
  if (mask.defined()) {
    own_mask = MaskFor(Operand(mask, axis), heads, q.dim());
  }
  const at::Tensor out = at::scaled_dot_product_attention(
      exchanged(q, attention.q_layout, attention.num_queries),
      exchanged(k, attention.k_layout, attention.num_keys),
      exchanged(v, attention.k_layout, attention.num_keys),
      mask.defined() ? std::optional<at::Tensor>(own_mask) : std::nullopt,
      /*dropout_p=*/0.0, attention.is_causal, attention.scale,
      attention.is_grouped);
  Sizes whole = out.sizes().vec();
  whole[static_cast<size_t>(heads_dim)] = q.size(heads_dim);
  return Move(out, heads, attention.q_layout, whole, axis);
}

// The axis that cuts first among those of the parts; null if all are plain.
AxisPtr FirstAxis(std::initializer_list<at::Tensor> parts) {
  AxisPtr first;
  for (const at::Tensor& part : parts) {
    const Sharded* sharded = AsSharded(part);
    if (sharded == nullptr) continue;
    if (!first || sharded->axis->level < first->level) first = sharded->axis;
  }
  return first;
}

// The attention of parts, which may lie in parts on further axes.
at::Tensor AttendParts(const Attention& attention, const at::Tensor& q,
                       const at::Tensor& k, const at::Tensor& v,
                       const at::Tensor& mask) {
  const AxisPtr axis = FirstAxis({q, k, v, mask});
  if (!axis) {
    return attention.is_ring() ? AttendByRing(attention, q, k, v)
                               : AttendByHeads(attention, q, k, v, mask);
  }
  const Operand queries(q, axis);
  const Operand keys(k, axis);
  const Operand values(v, axis);
  const int64_t sequence = queries.ndim() - 2;
  Layout layout;
  for (const Operand* operand : {&queries, &keys, &values}) {
    if (!layout.is_shard() && operand->is_shard() &&
        operand->layout().dim < sequence) {
      layout = operand->layout();
    }
  }
  if (!layout.is_shard()) {
    return AttendParts(attention, queries.To(layout), keys.To(layout),
                       values.To(layout),
                       mask.defined() ? Operand(mask, axis).To(layout) : mask);
  }
  at::Tensor out = AttendParts(
      attention, queries.To(layout), ForOwnHeads(*axis, keys, queries, layout),
      ForOwnHeads(*axis, values, queries, layout),
      mask.defined() ? MaskFor(Operand(mask, axis), layout, queries.ndim())
                     : mask);
  Sizes sizes = queries.sizes();
  sizes.back() = values.size(-1);
  return Wrap(std::move(out), layout, axis, sizes);
}

}  // namespace

bool CutsSequence(const Call& call, const Operand& q, const Operand& k,
                  const Operand& v) {
  if (call.axis()->sequence_attention == SequenceAttention::kAllGather) {
    return false;
  }
  const auto is_cut = [](const Operand& x) { return x.is_shard(x.ndim() - 2); };
  return (is_cut(q) || is_cut(k) || is_cut(v)) &&
         !(k.is_same() && v.is_same()) && k.size(-2) > 0;
}

Values AttendOverSequence(Call& call) {
  const Operand q = call.operand(0);
  const Operand k = call.operand(1);
  const Operand v = call.operand(2);
  const Operand mask = call.operand(kAttentionMask);
  const auto grouped = call.argument_index("enable_gqa");
  const auto scale = call.argument_index("scale");
  const int64_t sequence = q.ndim() - 2;
  const Attention attention{
      .axis = call.axis(),
      .q_layout = q.layout(),
      .k_layout = k.is_shard(sequence)
                      ? k.layout()
                      : Layout::Shard(sequence, 1, q.layout().balanced),
      .num_queries = q.size(-2),
      .num_keys = k.size(-2),
      .is_causal = call.arg(kAttentionIsCausal).toBool(),
      .is_grouped = grouped.has_value() && call.arg(*grouped).toBool(),
      .scale = scale.has_value() ? call.arg(*scale).toOptional<double>()
                                 : std::nullopt};
  CheckArguments(call, q, k, v, attention);
  const at::Tensor out = AttendParts(
      attention, q.part(), k.To(attention.k_layout), v.To(attention.k_layout),
      mask.defined() ? mask.To(Layout::Same()) : at::Tensor());
  Sizes whole = q.sizes();
  whole.back() = v.size(-1);
  return Values{call.Wrapped(out, attention.q_layout, whole)};
}

std::vector<RingTile> CausalTiles(const std::vector<Piece>& q_pieces,
                                  const std::vector<Piece>& k_pieces) {
  std::vector<RingTile> tiles;
  int64_t q_begin = 0;
  for (const Piece& queries : q_pieces) {
    int64_t earlier = 0;
    for (const Piece& keys : k_pieces) {
      if (keys.begin < queries.begin) earlier += keys.length;
    }
    if (queries.length > 0 && earlier > 0) {
      RingTile* last = tiles.empty() ? nullptr : &tiles.back();
      if (last != nullptr && last->k_length == earlier &&
          last->q_begin + last->q_length == q_begin) {
        last->q_length += queries.length;
      } else {
        tiles.push_back({q_begin, queries.length, earlier, false});
      }
    }
    q_begin += queries.length;
  }
  return tiles;
}

}  // namespace fsdp::spmd
