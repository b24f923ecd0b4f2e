// SPDX-License-Identifier: Apache-2.0
// Operators that pick indices, and those that join tensors.
//
// Tested by tests/fsdp/parallel/spmd/rules/rules_test.cc.

#include <functional>
#include <utility>
#include <vector>

#include "fsdp/parallel/spmd/rules/rules.h"

namespace fsdp::spmd {
namespace {

// x with the indices along dimension `dim` replaced by those in `index`, a
// tensor with any number of dimensions.
std::optional<Values> Pick(
    Call& call, const Operand& x, const Operand& index, int64_t dim,
    const std::function<Values(at::Tensor, at::Tensor)>& run) {
  Sizes whole = x.sizes();
  whole.erase(whole.begin() + dim);
  whole.insert(whole.begin() + dim, index.sizes().begin(), index.sizes().end());
  const auto finish = [&](Values results, const Layout& layout) {
    results[0] = call.Wrapped(results[0].toTensor(), layout, whole);
    return results;
  };
  if (index.is_shard()) {
    return finish(run(x.Varying(), index.part()),
                  index.layout().At(index.layout().dim + dim));
  }
  if (index.is_partial() || x.is_shard(dim)) return std::nullopt;
  Layout layout = x.layout();
  if (layout.is_shard() && layout.dim > dim) layout.dim += index.ndim() - 1;
  return finish(run(x.part(), index.part()), layout);
}

}  // namespace

std::optional<Values> IndexSelectRule(Call& call) {
  const Operand x = call.operand(0);
  const Operand index = call.operand(2);
  if (index.ndim() != 1 || x.ndim() == 0) return std::nullopt;
  const int64_t dim = NonNegative(call.arg(1).toInt(), x.ndim());
  return Pick(call, x, index, dim, [&](at::Tensor from, at::Tensor picked) {
    return call.Run({std::move(from), call.arg(1), std::move(picked)});
  });
}

// x[.., index, ..] with one tensor of integers.
std::optional<Values> IndexRule(Call& call) {
  const Operand x = call.operand(0);
  const auto list = call.arg(1).toListRef();
  std::optional<size_t> place;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].isTensor() || !list[i].toTensor().defined()) continue;
    if (place.has_value()) return std::nullopt;
    place = i;
  }
  if (!place.has_value()) return std::nullopt;
  const Operand index(list[*place].toTensor(), call.axis());
  if (!c10::isIntegralType(index.part().scalar_type(), /*includeBool=*/false) ||
      index.part().scalar_type() == at::kByte) {
    return std::nullopt;
  }
  return Pick(call, x, index, static_cast<int64_t>(*place),
              [&](at::Tensor from, at::Tensor picked) {
                c10::impl::GenericList indices = call.arg(1).toList().copy();
                indices.set(*place, std::move(picked));
                return call.Run({std::move(from), std::move(indices)});
              });
}

// x and the index are cut alike, along another dimension than the one that is
// picked from.
std::optional<Values> GatherRule(Call& call) {
  const Operand x = call.operand(0);
  const Operand index = call.operand(2);
  const Operand& cut = x.is_shard() ? x : index;
  if (!cut.is_shard() || index.ndim() != x.ndim()) return std::nullopt;
  const int64_t dim = NonNegative(call.arg(1).toInt(), x.ndim());
  const Layout& layout = cut.layout();
  if (layout.dim == dim || x.size(layout.dim) != index.size(layout.dim)) {
    return std::nullopt;
  }
  Values args = call.args();
  args[0] = x.To(layout);
  args[2] = index.To(layout);
  return call.Run(std::move(args), layout, index.sizes());
}

// cat, and stack, which joins along a dimension that was not there.
std::optional<Values> JoinRule(Call& call) {
  const std::vector<Operand> operands = call.operands(0);
  const bool is_stack = call.name() == "aten::stack";
  const int64_t ndim = operands.front().ndim();
  const int64_t dim =
      NonNegative(call.arg(1).toInt(), ndim + (is_stack ? 1 : 0));
  const Operand* cut = nullptr;
  bool all_partial = true;
  int64_t length = 0;
  for (const Operand& operand : operands) {
    if (operand.ndim() != ndim) return std::nullopt;
    if (cut == nullptr && operand.is_shard()) cut = &operand;
    all_partial = all_partial && operand.is_partial();
    length += is_stack ? 1 : operand.size(dim);
  }
  Layout layout = all_partial ? Layout::Partial() : Layout::Same();
  if (cut != nullptr) layout = cut->layout();
  if (layout.is_shard(dim) && !is_stack) return std::nullopt;
  std::vector<at::Tensor> parts;
  for (const Operand& operand : operands) parts.push_back(operand.To(layout));
  Sizes whole = operands.front().sizes();
  if (is_stack) {
    whole.insert(whole.begin() + dim, length);
    if (layout.is_shard() && layout.dim >= dim) ++layout.dim;
  } else {
    whole[static_cast<size_t>(dim)] = length;
  }
  return call.Run({std::move(parts), call.arg(1)}, layout, whole);
}

}  // namespace fsdp::spmd
