// SPDX-License-Identifier: Apache-2.0
// Operators that work along some dimensions, for every index in the others:
// slices, reductions, scans, sorting, softmax. A cut along another dimension
// stays; sums and means along the cut one are added up.
//
// Tested by tests/fsdp/parallel/spmd/rules/rules_test.cc.

#include <algorithm>
#include <utility>
#include <vector>

#include "ATen/ops/sum.h"
#include "fsdp/parallel/spmd/moves.h"
#include "fsdp/parallel/spmd/rules/rules.h"

namespace fsdp::spmd {
namespace {

// The dimensions that the operator works along; nullopt if it names none, which
// means all.
std::optional<Sizes> OperatorDims(const Call& call, int64_t ndim) {
  auto place = call.argument_index("dim");
  if (!place.has_value()) place = call.argument_index("dims");
  if (!place.has_value()) return std::nullopt;
  const c10::IValue& value = call.arg(*place);
  Sizes dims;
  if (value.isInt()) dims = {value.toInt()};
  if (value.isIntList()) dims = value.toIntVector();
  if (dims.empty()) return std::nullopt;
  for (int64_t& dim : dims) dim = NonNegative(dim, ndim);
  return dims;
}

bool Contains(const Sizes& dims, int64_t dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

// A slice that leaves nothing out.
bool IsWholeSlice(const Call& call, const Operand& x) {
  if (call.name() != "aten::slice") return false;
  const auto integer = [&](size_t i, int64_t otherwise) {
    return call.arg(i).isInt() ? call.arg(i).toInt() : otherwise;
  };
  const int64_t length = x.size(integer(1, 0));
  return integer(2, 0) == 0 && integer(3, length) >= length &&
         integer(4, 1) == 1;
}

// One result, or several, or a list, each with the same cut as x.
Values WrapAll(const Call& call, Values results, const Operand& x,
               const Sizes& dims) {
  const auto wrapped = [&](const at::Tensor& part) {
    Layout layout = x.layout();
    if (!layout.is_shard()) return call.Wrapped(part, layout, 0);
    const int64_t length = x.size(layout.dim);
    if (part.dim() < x.ndim()) {
      const int64_t cut = layout.dim;
      layout.dim -= std::count_if(dims.begin(), dims.end(),
                                  [&](int64_t dim) { return dim < cut; });
    }
    return call.Wrapped(part, layout, length);
  };
  for (c10::IValue& result : results) {
    if (result.isTensor()) {
      result = wrapped(result.toTensor());
      continue;
    }
    std::vector<at::Tensor> list;
    for (const at::Tensor& part : result.toTensorVector()) {
      list.push_back(wrapped(part));
    }
    result = std::move(list);
  }
  return results;
}

std::optional<Values> AlongDims(Call& call, bool passes_sums) {
  const Operand x = call.operand(0);
  if (call.writes(0)) return std::nullopt;
  Values args = call.args();
  if (x.is_same() || (x.is_partial() && !passes_sums)) {
    args[0] = x.To(Layout::Same());
    return call.Run(std::move(args));
  }
  const std::optional<Sizes> dims = OperatorDims(call, x.ndim());
  if (x.is_shard() && (!dims.has_value() || Contains(*dims, x.layout().dim)) &&
      !IsWholeSlice(call, x)) {
    return std::nullopt;
  }
  args[0] = x.part();
  return WrapAll(call, call.Run(std::move(args)), x, dims.value_or(Sizes{}));
}

}  // namespace

std::optional<Values> AlongDimsRule(Call& call) {
  return AlongDims(call, /*passes_sums=*/false);
}

std::optional<Values> LinearAlongDimsRule(Call& call) {
  return AlongDims(call, /*passes_sums=*/true);
}

std::optional<Values> MaximumRule(Call& call) {
  return call.overload() == "other" ? ElementwiseRule(call)
                                    : AlongDimsRule(call);
}

std::optional<Values> SumRule(Call& call) {
  const Operand x = call.operand(0);
  const std::optional<Sizes> dims = OperatorDims(call, x.ndim());
  const bool is_mean = call.name() == "aten::mean";
  const bool reduces_cut =
      x.is_shard() && (!dims.has_value() || Contains(*dims, x.layout().dim));
  // A sum over everything is reduced right away: scalars are ordinary tensors.
  if (x.is_partial() && !dims.has_value()) {
    Values args = call.args();
    args[0] = x.part();
    const at::Tensor part = call.Run(std::move(args))[0].toTensor();
    return Values{Move(part, x.layout(), Layout::Same(), part.sizes().vec(),
                       call.axis())};
  }
  if (!reduces_cut) return LinearAlongDimsRule(call);
  if (call.has_tensor(call.num_args() - 1)) return std::nullopt;  // out
  std::optional<c10::ScalarType> dtype;
  if (const auto place = call.argument_index("dtype");
      place.has_value() && !call.arg(*place).isNone()) {
    dtype = call.arg(*place).toScalarType();
  }
  const c10::ScalarType result_type = dtype.value_or(x.part().scalar_type());
  if (is_mean && !c10::isFloatingType(result_type)) return std::nullopt;
  const auto keepdim = call.argument_index("keepdim");
  // A mean's sum may be larger than low precision can express.
  if (is_mean && result_type != at::kDouble) dtype = at::kFloat;
  at::Tensor sum =
      at::sum(x.part(),
              dims.has_value() ? c10::OptionalIntArrayRef(*dims) : std::nullopt,
              keepdim.has_value() && call.arg(*keepdim).toBool(), dtype);
  sum = Move(sum, Layout::Partial(), Layout::Same(), sum.sizes().vec(),
             call.axis());
  if (!is_mean) return Values{sum};
  int64_t number = 1;
  for (int64_t d = 0; d < x.ndim(); ++d) {
    if (!dims.has_value() || Contains(*dims, d)) number *= x.size(d);
  }
  return Values{(sum / number).to(result_type)};
}

}  // namespace fsdp::spmd
