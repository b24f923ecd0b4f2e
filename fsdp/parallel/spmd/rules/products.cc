// SPDX-License-Identifier: Apache-2.0
// Matrix products: the cut of the arguments decides the result's layout.
//
//   x [.., K] times w [K, N]:  w cut along N: x whole, the result cut along N
//                              w cut along K: x cut along K, the result partial
//                              x cut in front of K: w whole, the result as x
//
// Tested by tests/fsdp/parallel/spmd/rules/rules_test.cc.

#include <optional>
#include <utility>

#include "ATen/ops/add.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/sum.h"
#include "fsdp/parallel/spmd/rules/rules.h"
#include "fsdp/parallel/spmd/rules/styled.h"

namespace fsdp::spmd {
namespace {

// A product of x with a matrix, and where its arguments are.
struct Product {
  size_t x_at;
  size_t w_at;
  std::optional<size_t> bias_at;
  // Whether w is [N, K], as torch::linear takes it.
  bool transposed = false;
};

// A product's arguments on this rank, and the layouts of result and bias.
struct Parts {
  at::Tensor x;
  at::Tensor w;
  Layout result;
  // The layout in which the bias is added; varying if each rank adds all of it.
  Layout bias;
  bool bias_varies = false;
};

// `rows` is the dimension K in w. A sum is multiplied as it is, by a tensor
// that is the same on every rank.
std::optional<Parts> ChooseProductParts(const Operand& x, const Operand& w,
                                        int64_t rows) {
  const int64_t columns = 1 - rows;
  const int64_t last = x.ndim() - 1;
  if (w.is_shard(columns)) {
    return Parts{x.Varying(), w.part(), w.layout().At(last), w.layout().At(0)};
  }
  if (w.is_shard(rows)) {
    return Parts{x.To(w.layout().At(last)), w.part(), Layout::Partial(),
                 Layout::Partial()};
  }
  if (x.is_shard() && x.layout().dim != last) {
    return Parts{x.part(), w.Varying(), x.layout(), {}, /*bias_varies=*/true};
  }
  if (x.is_shard()) {
    // A parameter that is not cut has a gradient on every rank.
    if (w.param() != nullptr) return std::nullopt;
    return Parts{x.part(), w.To(x.layout().At(rows)), Layout::Partial(),
                 Layout::Partial()};
  }
  if (x.is_partial()) {
    return Parts{x.part(), w.Varying(), Layout::Partial(), Layout::Partial()};
  }
  if (w.is_partial()) {
    return Parts{x.Varying(), w.part(), Layout::Partial(), Layout::Partial()};
  }
  return Parts{x.To(Layout::Same()), w.To(Layout::Same()), {}, {}};
}

std::optional<Values> ProductRule(Call& call, const Product& product) {
  Operand x = call.operand(product.x_at);
  const Operand w = call.operand(product.w_at);
  const Operand bias =
      product.bias_at.has_value() ? call.operand(*product.bias_at) : Operand();
  if (w.ndim() != 2 || x.ndim() < 1 || (bias.defined() && bias.ndim() != 1)) {
    return std::nullopt;
  }
  const OperatorStyle* style =
      w.param() != nullptr ? &w.param()->product : nullptr;
  ApplyInputStyle(style, x);
  const int64_t rows = product.transposed ? 1 : 0;  // the dimension K in w
  TORCH_CHECK_VALUE(
      !w.is_shard(rows) || x.sizes().back() == w.size(rows), call.name(),
      ": an input whose last dimension is ", x.sizes().back(),
      " meets a weight of ", w.size(rows), " rows, of which this rank has ",
      w.part().size(rows),
      ". A plain input is the whole; if it is this rank's part, set "
      "input_layouts = Shard(-1)");
  const std::optional<Parts> parts = ChooseProductParts(x, w, rows);
  if (!parts.has_value()) return std::nullopt;
  Sizes whole = x.sizes();
  whole.back() = w.size(1 - rows);
  Values args = call.args();
  args[product.x_at] = parts->x;
  args[product.w_at] = parts->w;
  if (bias.defined()) {
    args[*product.bias_at] =
        parts->bias_varies ? bias.Varying() : bias.To(parts->bias);
  }
  const bool adds_bias_later =
      !product.bias_at.has_value() && w.param() != nullptr;
  const at::Tensor part = call.Run(std::move(args))[0].toTensor();
  return Values{ApplyOutputStyle(call, style, part, parts->result, whole,
                                 adds_bias_later ? w.param()->bias : nullptr)};
}

// Two equally long stacks of matrices: cut in front of the matrices, along the
// rows or columns that the result keeps, or where they meet.
std::optional<Values> BatchedProduct(Call& call, const Operand& a,
                                     const Operand& b) {
  if (a.ndim() != b.ndim() || a.ndim() < 3) return std::nullopt;
  const int64_t columns = a.ndim() - 1;
  const int64_t rows = columns - 1;
  for (int64_t d = 0; d < rows; ++d) {
    if (a.size(d) != b.size(d)) return std::nullopt;
  }
  Sizes whole = a.sizes();
  whole.back() = b.sizes().back();
  const auto run = [&](at::Tensor a_part, at::Tensor b_part,
                       const Layout& layout) {
    return call.Run({std::move(a_part), std::move(b_part)}, layout, whole);
  };
  const Operand& cut = a.is_shard() ? a : b;
  if (cut.is_shard() && cut.layout().dim < rows) {
    return run(a.To(cut.layout()), b.To(cut.layout()), cut.layout());
  }
  if (a.is_shard(rows)) return run(a.part(), b.Varying(), a.layout());
  if (b.is_shard(columns)) return run(a.Varying(), b.part(), b.layout());
  if (a.is_shard(columns)) {
    return run(a.part(), b.To(a.layout().At(rows)), Layout::Partial());
  }
  if (b.is_shard(rows)) {
    return run(a.To(b.layout().At(columns)), b.part(), Layout::Partial());
  }
  return a.is_partial() ? run(a.part(), b.Varying(), Layout::Partial())
                        : run(a.Varying(), b.part(), Layout::Partial());
}

}  // namespace

std::optional<Values> MatmulRule(Call& call) {
  if (call.num_args() != 2) return std::nullopt;
  const Operand a = call.operand(0);
  const Operand b = call.operand(1);
  if (b.ndim() == 2 && a.ndim() >= 2) {
    return ProductRule(call, {.x_at = 0, .w_at = 1, .bias_at = {}});
  }
  if (auto done = BatchedProduct(call, a, b)) return done;
  return call.RunComposed();
}

std::optional<Values> AddmmRule(Call& call) {
  if (call.num_args() != 5) return std::nullopt;
  if (call.arg(3).toScalar().toDouble() != 1 ||
      call.arg(4).toScalar().toDouble() != 1) {
    return AddedProductRule(call);
  }
  return ProductRule(call, {.x_at = 1, .w_at = 2, .bias_at = 0});
}

// beta * self + alpha * (a @ b)
std::optional<Values> AddedProductRule(Call& call) {
  if (call.num_args() != 5 || call.writes(0)) return std::nullopt;
  const at::Tensor product =
      at::matmul(call.arg(1).toTensor(), call.arg(2).toTensor());
  const at::Scalar beta = call.arg(3).toScalar();
  const at::Scalar alpha = call.arg(4).toScalar();
  return Values{at::add(call.arg(0).toTensor() * beta, product, alpha)};
}

std::optional<Values> VectorProductRule(Call& call) {
  if (call.num_args() != 2) return std::nullopt;
  const at::Tensor& a = call.arg(0).toTensor();
  const at::Tensor& b = call.arg(1).toTensor();
  if (a.dim() == 1) return Values{at::sum(a * b)};  // dot
  return Values{at::matmul(a, b.unsqueeze(1)).squeeze(1)};
}

std::optional<Values> LinearRule(Call& call) {
  return ProductRule(call,
                     {.x_at = 0, .w_at = 1, .bias_at = 2, .transposed = true});
}

}  // namespace fsdp::spmd
