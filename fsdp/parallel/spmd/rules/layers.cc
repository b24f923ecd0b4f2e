// SPDX-License-Identifier: Apache-2.0
// Normalizations and lookups.
//
// Tested by tests/fsdp/parallel/spmd/rules/layers_test.cc.

#include <utility>

#include "ATen/ops/cat.h"
#include "fsdp/parallel/spmd/rules/rules.h"
#include "fsdp/parallel/spmd/rules/styled.h"

namespace fsdp::spmd {
namespace {

// A weight or bias for a computation on a tensor that lies as `layout`: each
// rank has another share of the weight's gradient, unless all compute the same.
at::Tensor WholeFor(const Operand& weight, const Layout& layout) {
  return layout.is_same() ? weight.To(layout) : weight.Varying();
}

// Looks up rows in a table that is cut by rows. Rows on other ranks give zeros,
// so that the result is a sum. `padding` is a row in the whole table, or -1.
at::Tensor LookUpOwnRows(const Call& call, const Operand& table,
                         const at::Tensor& index, int64_t padding) {
  const Piece own = RankPieces(table.size(0), table.layout(), call.ranks(),
                               call.axis()->rank)[0];
  at::Tensor rows = table.part();
  if (own.length == 0) {
    // Backward passes here on every rank.
    rows = at::cat({rows, rows.new_zeros({1, rows.size(1)})});
  }
  const at::Tensor shifted = index - own.begin;
  const at::Tensor absent = shifted.lt(0).logical_or_(shifted.ge(own.length));
  Values args = call.args();
  args[0] = std::move(rows);
  args[1] = shifted.masked_fill(absent, 0);
  const bool has_padding =
      padding >= own.begin && padding < own.begin + own.length;
  args[2] = has_padding ? padding - own.begin : -1;
  return call.Run(std::move(args))[0].toTensor().masked_fill(
      absent.unsqueeze(-1), 0);
}

}  // namespace

// layer_norm and rms_norm: everything but the normalized dimensions may be cut.
std::optional<Values> NormRule(Call& call) {
  Operand x = call.operand(0);
  const Operand weight = call.operand(2);
  const bool has_bias = call.name() == "aten::layer_norm";
  const Operand bias = has_bias ? call.operand(3) : Operand();
  const OperatorStyle* style =
      weight.param() != nullptr ? &weight.param()->product : nullptr;
  ApplyInputStyle(style, x);
  Layout layout = x.layout();
  if (!layout.is_shard() && style != nullptr &&
      style->sequence_dim.has_value()) {
    layout = ToLayout(fsdp::Shard(*style->sequence_dim), x.ndim());
  }
  if (layout.is_partial()) layout = Layout::Same();
  const auto num_normalized =
      static_cast<int64_t>(call.arg(1).toIntVector().size());
  if (layout.is_shard() && layout.dim >= x.ndim() - num_normalized) {
    return std::nullopt;
  }
  Values args = call.args();
  args[0] = x.To(layout);
  if (weight.defined()) args[2] = WholeFor(weight, layout);
  if (bias.defined()) args[3] = WholeFor(bias, layout);
  return Values{ApplyOutputStyle(call, style,
                                 call.Run(std::move(args))[0].toTensor(),
                                 layout, x.sizes(), nullptr)};
}

// Cut along the batch; channel groups, and the dimensions they average over,
// are whole.
std::optional<Values> GroupNormRule(Call& call) {
  const Operand x = call.operand(0);
  if (x.is_shard() && !x.is_shard(0)) return std::nullopt;
  const Layout layout = x.is_shard() ? x.layout() : Layout::Same();
  Values args = call.args();
  args[0] = x.To(layout);
  for (const size_t i : {2, 3}) {
    if (call.has_tensor(i)) args[i] = WholeFor(call.operand(i), layout);
  }
  return call.Run(std::move(args), layout, x.sizes());
}

std::optional<Values> EmbeddingRule(Call& call) {
  const Operand table = call.operand(0);
  const Operand index = call.operand(1);
  const OperatorStyle* style =
      table.param() != nullptr ? &table.param()->embedding : nullptr;
  const bool counts_frequency = call.arg(3).toBool();
  Values args = call.args();
  if (table.param() != nullptr && table.param()->padding_idx.has_value()) {
    args[2] = *table.param()->padding_idx;
  }
  if (call.arg(4).toBool() ||
      (table.is_shard(0) && (counts_frequency || table.layout().blocks > 1 ||
                             table.layout().balanced)) ||
      (index.is_shard() && counts_frequency)) {
    if (args[2].toInt() == call.arg(2).toInt()) return std::nullopt;
    args[0] = table.To(Layout::Same());
    args[1] = index.To(Layout::Same());
    return call.Run(std::move(args));
  }
  Sizes whole = index.sizes();
  whole.push_back(table.size(1));
  Layout layout = Layout::Same();
  at::Tensor part;
  if (table.is_shard(0)) {
    layout = Layout::Partial();
    part =
        LookUpOwnRows(call, table, index.To(Layout::Same()), args[2].toInt());
  } else {
    if (table.is_shard(1)) layout = table.layout().At(index.ndim());
    const bool cuts_index = !table.is_shard() && index.is_shard();
    if (cuts_index) layout = index.layout();
    args[0] = cuts_index ? table.Varying()
                         : table.To(table.is_shard() ? table.layout() : layout);
    args[1] = cuts_index ? index.part() : index.To(Layout::Same());
    part = call.Run(std::move(args))[0].toTensor();
  }
  return Values{ApplyOutputStyle(call, style, part, layout, whole, nullptr)};
}

}  // namespace fsdp::spmd
