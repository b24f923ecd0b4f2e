// SPDX-License-Identifier: Apache-2.0
// Views and reshapes: the same operator on the part, with the cut on the
// dimension's new place.
//
// Tested by tests/fsdp/parallel/spmd/rules/rules_test.cc.

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "fsdp/parallel/spmd/rules/rules.h"

namespace fsdp::spmd {
namespace {

// The order in which the operator puts the dimensions: result dimension d was
// order[d].
std::optional<std::vector<int64_t>> DimOrder(const Call& call, int64_t ndim) {
  std::vector<int64_t> order(static_cast<size_t>(ndim));
  std::iota(order.begin(), order.end(), 0);
  const std::string& name = call.name();
  if (name == "aten::t" || name == "aten::numpy_T" || name == "aten::mT") {
    if (name == "aten::mT") {
      std::swap(order[order.size() - 1], order[order.size() - 2]);
    } else {
      std::reverse(order.begin(), order.end());
    }
    return order;
  }
  if (name == "aten::permute") {
    order = call.arg(1).toIntVector();
    for (int64_t& dim : order) dim = NonNegative(dim, ndim);
    return order;
  }
  if (name == "aten::movedim") {
    if (!call.arg(1).isInt()) return std::nullopt;
    const int64_t source = NonNegative(call.arg(1).toInt(), ndim);
    const int64_t target = NonNegative(call.arg(2).toInt(), ndim);
    order.erase(order.begin() + source);
    order.insert(order.begin() + target, source);
    return order;
  }
  if (!call.arg(1).isInt()) return std::nullopt;
  std::swap(order[static_cast<size_t>(NonNegative(call.arg(1).toInt(), ndim))],
            order[static_cast<size_t>(NonNegative(call.arg(2).toInt(), ndim))]);
  return order;
}

// The shape that the operator gives the whole.
std::optional<Sizes> TargetSizes(const Call& call, const Operand& x) {
  const std::string& name = call.name();
  const int64_t ndim = x.ndim();
  if (name == "aten::flatten") {
    if (!call.arg(1).isInt()) return std::nullopt;
    const auto begin =
        static_cast<size_t>(NonNegative(call.arg(1).toInt(), ndim));
    const auto end =
        static_cast<size_t>(NonNegative(call.arg(2).toInt(), ndim)) + 1;
    Sizes to(x.sizes().begin(), x.sizes().begin() + begin);
    to.push_back(SizesProduct(x.sizes(), begin, end));
    to.insert(to.end(), x.sizes().begin() + end, x.sizes().end());
    return to;
  }
  if (name == "aten::unflatten") {
    if (!call.arg(1).isInt() || !call.arg(2).isIntList()) return std::nullopt;
    const int64_t dim = NonNegative(call.arg(1).toInt(), ndim);
    const Sizes inner = WithInferred(call.arg(2).toIntVector(), x.size(dim));
    Sizes to = x.sizes();
    to.erase(to.begin() + dim);
    to.insert(to.begin() + dim, inner.begin(), inner.end());
    return to;
  }
  if (name == "aten::view_as" || name == "aten::reshape_as") {
    return call.arg(1).toTensor().sizes().vec();
  }
  if (!call.arg(1).isIntList()) return std::nullopt;  // view(dtype)
  return WithInferred(call.arg(1).toIntVector(), ElementCount(x.sizes()));
}

// Notes the parameter that the results are views of.
Values NoteViewedParam(Values results, const StyledParam* param) {
  if (Sharded* sharded = AsSharded(results[0].toTensor())) {
    sharded->param = param;
  }
  return results;
}

}  // namespace

std::optional<Values> PermuteRule(Call& call) {
  const Operand x = call.operand(0);
  const auto order = DimOrder(call, x.ndim());
  if (!order.has_value()) return std::nullopt;
  Sizes whole(x.sizes().size());
  Layout layout = x.layout();
  for (size_t d = 0; d < whole.size(); ++d) {
    whole[d] = x.size((*order)[d]);
    if (x.is_shard((*order)[d])) layout.dim = static_cast<int64_t>(d);
  }
  Values args = call.args();
  args[0] = x.part();
  if (x.param() != nullptr && layout.is_same()) {
    // A replicated parameter stays recognisable.
    return Values{WrapView(call.Run(std::move(args))[0].toTensor(), *x.param(),
                           layout, whole)};
  }
  return NoteViewedParam(call.Run(std::move(args), layout, whole), x.param());
}

std::optional<Values> UnsqueezeRule(Call& call) {
  const Operand x = call.operand(0);
  const int64_t at = NonNegative(call.arg(1).toInt(), x.ndim() + 1);
  Sizes whole = x.sizes();
  whole.insert(whole.begin() + at, 1);
  Layout layout = x.layout();
  if (layout.is_shard() && layout.dim >= at) ++layout.dim;
  Values args = call.args();
  args[0] = x.part();
  return call.Run(std::move(args), layout, whole);
}

std::optional<Values> ReshapeRule(Call& call) {
  const Operand x = call.operand(0);
  const std::optional<Sizes> whole = TargetSizes(call, x);
  if (!whole.has_value()) return std::nullopt;
  TORCH_CHECK(ElementCount(*whole) == ElementCount(x.sizes()), call.name(),
              ": shape ", c10::IntArrayRef(*whole),
              " is invalid for an input of size ", c10::IntArrayRef(x.sizes()));
  Layout layout = x.layout();
  if (x.is_shard()) {
    const auto reshaped = Reshaped(x.sizes(), x.layout(), *whole, call.ranks());
    if (!reshaped.has_value()) return std::nullopt;
    layout = *reshaped;
  }
  const Sizes part = PartSizes(*whole, layout, call.ranks(), call.axis()->rank);
  const bool must_view =
      call.name() == "aten::view" || call.name() == "aten::view_as";
  return Values{
      call.Wrapped(must_view ? x.part().view(part) : x.part().reshape(part),
                   layout, *whole)};
}

std::optional<Values> SqueezeRule(Call& call) {
  const Operand x = call.operand(0);
  // By the whole sizes: a part may have one index where the whole has more.
  std::vector<int64_t> dims;
  if (call.num_args() > 1 && call.arg(1).isInt()) dims = {call.arg(1).toInt()};
  if (call.num_args() > 1 && call.arg(1).isIntList()) {
    dims = call.arg(1).toIntVector();
  }
  if (call.num_args() == 1) {
    dims.resize(x.sizes().size());
    std::iota(dims.begin(), dims.end(), 0);
  }
  std::vector<int64_t> squeezed;
  for (const int64_t dim : dims) {
    if (x.size(dim) == 1) squeezed.push_back(NonNegative(dim, x.ndim()));
  }
  Layout layout = x.layout();
  int64_t length = 0;
  if (layout.is_shard()) {
    if (x.size(layout.dim) == 1) return std::nullopt;
    length = x.size(layout.dim);
    layout.dim -=
        std::count_if(squeezed.begin(), squeezed.end(),
                      [&](int64_t dim) { return dim < x.layout().dim; });
  }
  return Values{call.Wrapped(x.part().squeeze(squeezed), layout, length)};
}

std::optional<Values> ExpandRule(Call& call) {
  const Operand x = call.operand(0);
  std::vector<int64_t> sizes = call.arg(1).toIntVector();
  Layout layout = x.layout();
  int64_t length = 0;
  if (layout.is_shard()) {
    length = x.size(layout.dim);
    if (length == 1) return std::nullopt;
    layout.dim += static_cast<int64_t>(sizes.size()) - x.ndim();
    sizes[static_cast<size_t>(layout.dim)] = -1;
  }
  Values args = call.args();
  args[0] = x.part();
  args[1] = sizes;
  return Values{
      call.Wrapped(call.Run(std::move(args))[0].toTensor(), layout, length)};
}

std::optional<Values> RepeatRule(Call& call) {
  const Operand x = call.operand(0);
  const std::vector<int64_t> repeats = call.arg(1).toIntVector();
  Layout layout = x.layout();
  int64_t length = 0;
  if (layout.is_shard()) {
    length = x.size(layout.dim);
    layout.dim += static_cast<int64_t>(repeats.size()) - x.ndim();
    const int64_t times = repeats[static_cast<size_t>(layout.dim)];
    length *= times;
    layout.blocks *= times;
  }
  if (layout.blocks == 0) return std::nullopt;
  Values args = call.args();
  args[0] = x.part();
  return Values{
      call.Wrapped(call.Run(std::move(args))[0].toTensor(), layout, length)};
}

std::optional<Values> RepeatInterleaveRule(Call& call) {
  if (call.overload() != "self_int" || !call.arg(2).isInt()) {
    return std::nullopt;
  }
  const Operand x = call.operand(0);
  const int64_t times = call.arg(1).toInt();
  const int64_t dim = NonNegative(call.arg(2).toInt(), x.ndim());
  const Layout& layout = x.layout();
  int64_t length = layout.is_shard() ? x.size(layout.dim) : 0;
  if (x.is_shard(dim)) {
    // Like a merge of [length, times].
    if (Reshaped({length, times}, layout.At(0), {length * times},
                 call.ranks()) != layout.At(0)) {
      return std::nullopt;
    }
    length *= times;
  }
  Values args = call.args();
  args[0] = x.part();
  return Values{
      call.Wrapped(call.Run(std::move(args))[0].toTensor(), layout, length)};
}

std::optional<Values> TriangleRule(Call& call) {
  const Operand x = call.operand(0);
  if (x.is_shard() && x.layout().dim >= x.ndim() - 2) return std::nullopt;
  Values args = call.args();
  args[0] = x.part();
  return call.Run(std::move(args), x.layout(), x.sizes());
}

std::optional<Values> ComposedRule(Call& call) { return call.RunComposed(); }

}  // namespace fsdp::spmd
