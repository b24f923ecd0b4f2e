// SPDX-License-Identifier: Apache-2.0
// Operators that compute each element of the result from the arguments'
// elements at the same place, after broadcasting.
//
// The result is cut like the first argument that is cut; the others are cut
// likewise, or moved there. A sum that the operator cannot pass on is reduced
// first: see Sums.

#include <utility>
#include <vector>

#include "fsdp/parallel/spmd/moves.h"
#include "fsdp/parallel/spmd/rules/rules.h"
#include "fsdp/parallel/spmd/rules/styled.h"

namespace fsdp::spmd {
namespace {

// How the operator treats arguments that are sums of the ranks' tensors.
enum class Sums {
  kReduced,  // it reduces them first
  kPassed,   // the result is a sum, too: linear in one argument
  kAdded,    // the same, linear in two arguments together
  kScaled,   // the same, linear in the first argument
};

Sizes BroadcastSizes(const std::vector<Operand>& operands) {
  Sizes out;
  for (const Operand& operand : operands) {
    const Sizes& sizes = operand.sizes();
    if (sizes.size() > out.size()) {
      out.insert(out.begin(), sizes.size() - out.size(), 1);
    }
    for (size_t d = 0; d < sizes.size(); ++d) {
      int64_t& size = out[out.size() - sizes.size() + d];
      if (sizes[d] != 1) size = sizes[d];
    }
  }
  return out;
}

// The result's layout.
Layout ResultLayout(Sums sums, const std::vector<Operand>& operands,
                    int64_t ndim) {
  bool all_partial = true;
  const Operand* cut = nullptr;
  for (const Operand& operand : operands) {
    all_partial = all_partial && operand.is_partial();
    // A cut along a broadcast dimension does not cut the result.
    if (cut == nullptr && operand.is_shard() &&
        operand.size(operand.layout().dim) != 1) {
      cut = &operand;
    }
  }
  if (cut != nullptr) {
    return cut->layout().At(cut->layout().dim + ndim - cut->ndim());
  }
  const size_t number = operands.size();
  const bool passes = (sums == Sums::kPassed && all_partial) ||
                      // A number would be added once for each rank.
                      (sums == Sums::kAdded && all_partial && number == 2) ||
                      (sums == Sums::kScaled && operands.front().is_partial() &&
                       (number == 1 || operands[1].is_same()));
  return passes ? Layout::Partial() : Layout::Same();
}

// An argument's part for a result that lies as `result`.
at::Tensor PartFor(const Operand& operand, Sums sums, const Layout& result,
                   int64_t ndim) {
  if (result.is_partial()) {
    return operand.is_partial() || sums == Sums::kAdded ? operand.To(result)
                                                        : operand.Varying();
  }
  if (!result.is_shard()) return operand.To(Layout::Same());
  const int64_t dim = result.dim - (ndim - operand.ndim());
  if (dim < 0 || operand.size(dim) == 1) return operand.Varying();
  return operand.To(result.At(dim));
}

// The layout for a tensor that is written in place: the present layout, unless
// the tensor is a sum that the operator does not pass on.
Layout LayoutInPlace(const Call& call, Sums sums, const Operand& self,
                     const Layout& result) {
  if (self.sharded() == nullptr) return Layout::Same();
  if (self.is_shard() || self.layout() == result) return self.layout();
  // Views of a tensor that moves would not see the write.
  if (!self.part().is_view()) return result;
  TORCH_CHECK_NOT_IMPLEMENTED(
      sums == Sums::kAdded && call.has_tensor(1), call.name(),
      " in place on a view of an activation that lies as ",
      to_string(self.layout()), " would have to move it");
  return self.layout();
}

// A bias's part, for adding to the last dimension of a result with `ndim`
// dimensions that lies as `layout`.
at::Tensor BiasFor(const Operand& bias, const Layout& layout, int64_t ndim) {
  if (layout.is_same()) return bias.To(layout);
  if (layout.is_partial()) return bias.To(Layout::Partial());
  return layout.dim + 1 == ndim ? bias.To(layout.At(0)) : bias.Varying();
}

// out += bias, after the product that it belongs to: the bias is added to the
// part before that moves to the style's layout.
std::optional<Values> AddOwnBias(Call& call) {
  if (call.name() != "aten::add_" && call.name() != "aten::add") {
    return std::nullopt;
  }
  if (!call.has_tensor(1)) return std::nullopt;
  const at::Tensor& bias = call.arg(1).toTensor();
  if (auto local = FindLocalOutput(call.arg(0).toTensor(), bias)) {
    const Operand operand(bias, call.axis());
    Values args = call.args();
    args[1] = BiasFor(operand, *local, call.arg(0).toTensor().dim());
    return call.Run(std::move(args));
  }
  Sharded* out = AsSharded(call.arg(0).toTensor());
  if (out == nullptr || out->axis != call.axis() || !out->pending.has_value() ||
      out->pending->bias != bias.unsafeGetTensorImpl()) {
    return std::nullopt;
  }
  const Sharded::Pending pending = *out->pending;
  const Sizes whole = out->sizes().vec();
  const Operand operand(bias, call.axis());
  const Layout layout = out->layout;
  Values args = call.args();
  args[0] = out->local;
  args[1] = BiasFor(operand, layout, static_cast<int64_t>(whole.size()));
  at::Tensor sum = call.Run(std::move(args))[0].toTensor();
  if (call.name() == "aten::add") {
    return Values{call.Wrapped(
        Move(sum, layout, pending.to, whole, call.axis()), pending.to, whole)};
  }
  out->Assign(Move(sum, layout, pending.to, whole, call.axis()), pending.to);
  Sharded::Guard(call.arg(0).toTensor());
  return Values{call.arg(0)};
}

// The case for most operators between two products: every argument is cut, all
// in the same way, so nothing moves and the result has the same layout. This
// saves the time that the general case takes to make operands.
std::optional<Values> OnPartsCutAlike(const Call& call) {
  Values args = call.args();
  const Sharded* like = nullptr;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].isTensorList()) return std::nullopt;
    if (!call.has_tensor(i)) continue;
    const at::Tensor& tensor = call.arg(i).toTensor();
    const Sharded* sharded = AsSharded(tensor);
    if (sharded == nullptr || sharded->axis != call.axis() ||
        !sharded->layout.is_shard() || sharded->pending.has_value() ||
        tensor.grad_fn().get() != sharded->guard || call.writes(i)) {
      return std::nullopt;
    }
    if (like == nullptr) like = sharded;
    if (sharded->layout != like->layout || sharded->sizes() != like->sizes()) {
      return std::nullopt;
    }
    args[i] = sharded->local;
  }
  if (like == nullptr) return std::nullopt;
  return call.Run(std::move(args), like->layout, like->sizes());
}

std::optional<Values> Elementwise(Call& call, Sums sums) {
  if (auto done = OnPartsCutAlike(call)) return done;
  std::vector<size_t> places;
  std::vector<Operand> operands;
  for (size_t i = 0; i < call.num_args(); ++i) {
    if (call.arg(i).isTensorList()) return std::nullopt;
    if (!call.has_tensor(i)) continue;
    // An argument `out`.
    if (i > 0 && call.writes(i)) return std::nullopt;
    places.push_back(i);
    operands.push_back(call.operand(i));
  }
  const bool in_place = call.writes(places.front());
  const Sizes whole = BroadcastSizes(operands);
  const auto ndim = static_cast<int64_t>(whole.size());
  Layout result = ResultLayout(sums, operands, ndim);
  if (in_place) result = LayoutInPlace(call, sums, operands.front(), result);
  Values args = call.args();
  for (size_t k = 0; k < places.size(); ++k) {
    args[places[k]] = PartFor(operands[k], sums, result, ndim);
  }
  if (!in_place) return call.Run(std::move(args), result, whole);
  Sharded* self = operands.front().sharded();
  const Values results = call.Run(std::move(args));
  if (self == nullptr) return results;
  self->Assign(results[0].toTensor(), result);
  Sharded::Guard(call.arg(places.front()).toTensor());
  return Values{call.arg(places.front())};
}

}  // namespace

std::optional<Values> ElementwiseRule(Call& call) {
  return Elementwise(call, Sums::kReduced);
}

std::optional<Values> LinearElementwiseRule(Call& call) {
  return Elementwise(call, Sums::kPassed);
}

std::optional<Values> AdditionRule(Call& call) {
  if (auto done = AddOwnBias(call)) return done;
  return Elementwise(call, Sums::kAdded);
}

std::optional<Values> ScalingRule(Call& call) {
  // A rounding mode is a third argument.
  const bool rounds = call.num_args() > 2 && !call.arg(2).isNone();
  return Elementwise(call, rounds ? Sums::kReduced : Sums::kScaled);
}

std::optional<Values> WhereRule(Call& call) {
  // With a condition alone it gives indices.
  return call.num_args() == 1 ? std::nullopt : ElementwiseRule(call);
}

std::optional<Values> CastRule(Call& call) {
  const Operand x = call.operand(0);
  Values args = call.args();
  c10::ScalarType dtype = x.part().scalar_type();
  if (call.has_tensor(1)) {
    // Only the dtype and device count.
    const at::Tensor like = call.operand(1).part();
    dtype = like.scalar_type();
    args[1] = like;
  } else if (call.overload() == "dtype") {
    dtype = call.arg(1).toScalarType();
  } else if (call.overload() == "device" && !call.arg(2).isNone()) {
    dtype = call.arg(2).toScalarType();
  } else if (call.overload() == "dtype_layout" && !call.arg(1).isNone()) {
    dtype = call.arg(1).toScalarType();
  }
  const bool reduces = x.is_partial() && !c10::isFloatingType(dtype);
  const Layout layout = reduces ? Layout::Same() : x.layout();
  args[0] = x.To(layout);
  Values results = call.Run(std::move(args), layout, x.sizes());
  // Without a change, it returns the same object, as for an ordinary tensor.
  const at::Tensor& part = AsSharded(results[0].toTensor()) == nullptr
                               ? results[0].toTensor()
                               : AsSharded(results[0].toTensor())->local;
  if (x.sharded() != nullptr && part.is_same(x.part())) {
    return Values{call.arg(0)};
  }
  return results;
}

}  // namespace fsdp::spmd
