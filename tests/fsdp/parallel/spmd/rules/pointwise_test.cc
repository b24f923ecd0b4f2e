// SPDX-License-Identifier: Apache-2.0
// Operators on elements: see op_case.h.

#include <utility>
#include <vector>

#include "fsdp/parallel/spmd/rules/rules.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/spmd/rules/op_case.h"
#include "torch/types.h"

namespace fsdp::spmd {
namespace {

using T = Tensors;

std::vector<OpCase> Arithmetic() {
  return {
      Case("add", {{{4, 5}}, {{4, 5}}}, [](const T& x) { return x[0] + x[1]; }),
      Case("add with alpha", {{{4, 5}}, {{4, 5}}},
           [](const T& x) { return at::add(x[0], x[1], 2.5); }),
      Case("add of a row", {{{4, 5}}, {{5}}},
           [](const T& x) { return x[0] + x[1]; }),
      Case("add of a column", {{{4, 5}}, {{4, 1}}},
           [](const T& x) { return x[0] + x[1]; }, {"1:1"}),
      Case("add of both", {{{4, 1, 3}}, {{2, 3}}},
           [](const T& x) { return x[0] + x[1]; }, {"0:1"}),
      Case("add of a number", {{{4, 5}}}, [](const T& x) { return x[0] + 3; }),
      Case("sub", {{{4, 5}}, {{4, 5}}}, [](const T& x) { return x[0] - x[1]; }),
      Case("mul", {{{4, 5}}, {{4, 5}}}, [](const T& x) { return x[0] * x[1]; }),
      Case("mul of a number", {{{4, 5}}}, [](const T& x) { return x[0] * 3; }),
      Case("mul of a scalar", {{{4, 5}}, {{}}},
           [](const T& x) { return x[0] * x[1]; }),
      Case("div", {{{4, 5}}, Positive({4, 5})},
           [](const T& x) { return x[0] / x[1]; }),
      Case("div rounded", {{{4, 5}}, Positive({4, 5})},
           [](const T& x) { return at::div(x[0], x[1], "floor"); }),
      Case("pow", {Positive({4, 5}), {{4, 5}}},
           [](const T& x) { return at::pow(x[0], x[1]); }),
  };
}

std::vector<OpCase> InPlace() {
  return {
      Case("add_", {{{4, 5}}, {{4, 5}}},
           [](const T& x) { return x[0].clone().add_(x[1]); }),
      Case("add_ of a row", {{{4, 5}}, {{5}}},
           [](const T& x) { return x[0].clone().add_(x[1]); }),
      Case("mul_ then used again", {{{4, 5}}, {{4, 5}}},
           [](const T& x) {
             at::Tensor y = x[0].clone();
             y.mul_(x[1]).relu_();
             return y * x[0];
           }),
      Case("sub_ of a view", {{{4, 5}}, {{5}}},
           [](const T& x) {
             at::Tensor y = x[0].clone();
             y.transpose(0, 1).sub_(x[1].unsqueeze(1));
             return y;
           }),
  };
}

using Unary = at::Tensor (*)(const at::Tensor&);

std::vector<OpCase> Functions() {
  const std::vector<std::pair<const char*, Unary>> functions = {
      {"abs", at::abs},
      {"atan", at::atan},
      {"ceil", at::ceil},
      {"cos", at::cos},
      {"cosh", at::cosh},
      {"erf", at::erf},
      {"exp", at::exp},
      {"expm1", at::expm1},
      {"floor", at::floor},
      {"hardsigmoid", at::hardsigmoid},
      {"hardswish", at::hardswish},
      {"isfinite", at::isfinite},
      {"isnan", at::isnan},
      {"log", at::log},
      {"log1p", at::log1p},
      {"log2", at::log2},
      {"log_sigmoid", at::log_sigmoid},
      {"mish", at::mish},
      {"neg", at::neg},
      {"positive", at::positive},
      {"reciprocal", at::reciprocal},
      {"relu", at::relu},
      {"relu6", at::relu6},
      {"rsqrt", at::rsqrt},
      {"selu", at::selu},
      {"sgn", at::sgn},
      {"sigmoid", at::sigmoid},
      {"sign", at::sign},
      {"silu", at::silu},
      {"sin", at::sin},
      {"sqrt", at::sqrt},
      {"square", at::square},
      {"tan", at::tan},
      {"tanh", at::tanh},
      {"trunc", at::trunc},
  };
  std::vector<OpCase> cases;
  for (const auto& [name, function] : functions) {
    cases.push_back(Case(name, {Positive({4, 5})},
                         [fn = function](const T& x) { return fn(x[0]); }));
  }
  return cases;
}

std::vector<OpCase> WithOptions() {
  return {
      Case("gelu", {{{4, 5}}},
           [](const T& x) { return at::gelu(x[0], "tanh"); }),
      Case("elu", {{{4, 5}}}, [](const T& x) { return at::elu(x[0], 2); }),
      Case("leaky_relu", {{{4, 5}}},
           [](const T& x) { return at::leaky_relu(x[0], 0.3); }),
      Case("softplus", {{{4, 5}}},
           [](const T& x) { return at::softplus(x[0], 2); }),
      Case("clamp", {{{4, 5}}}, [](const T& x) { return x[0].clamp(-0.5, 1); }),
      Case("clamp by tensors", {{{4, 5}}, {{5}}},
           [](const T& x) { return x[0].clamp(x[1]); }),
      Case("pow of a number", {{{4, 5}}},
           [](const T& x) { return at::pow(2, x[0]); }),
      Case("lerp", {{{4, 5}}, {{4, 5}}},
           [](const T& x) { return at::lerp(x[0], x[1], 0.3); }),
      Case("addcmul", {{{4, 5}}, {{4, 5}}, {{5}}},
           [](const T& x) { return at::addcmul(x[0], x[1], x[2], 2); }),
      Case("addcdiv", {{{4, 5}}, {{4, 5}}, Positive({5})},
           [](const T& x) { return at::addcdiv(x[0], x[1], x[2], 2); }),
      Case("maximum", {{{4, 5}}, {{5}}},
           [](const T& x) { return at::maximum(x[0], x[1]); }),
      Case("rsub", {{{4, 5}}, {{4, 5}}},
           [](const T& x) { return at::rsub(x[0], x[1]); }),
      Case("a number minus", {{{4, 5}}}, [](const T& x) { return 1 - x[0]; }),
      Case("atan2", {{{4, 5}}, Positive({4, 5})},
           [](const T& x) { return at::atan2(x[0], x[1]); }),
      Case("remainder", {{{4, 5}}, Positive({4, 5})},
           [](const T& x) { return at::remainder(x[0], x[1].detach()); }),
  };
}

std::vector<OpCase> Masks() {
  return {
      Case("less", {{{4, 5}}, {{5}}}, [](const T& x) { return x[0] < x[1]; }),
      Case("equal to a number", {Index({4, 5}, 3)},
           [](const T& x) { return x[0] == 1; }),
      Case("both", {Mask({4, 5}), Mask({4, 5})},
           [](const T& x) { return x[0].logical_and(x[1]).logical_not(); }),
      Case("bits", {Mask({4, 5}), Mask({5})},
           [](const T& x) { return (x[0] | x[1]) & ~x[1]; }),
      Case("masked_fill", {{{4, 5}}, Mask({5})},
           [](const T& x) { return x[0].masked_fill(x[1], -1e3); }),
      Case("masked_fill_", {{{4, 5}}, Mask({4, 5})},
           [](const T& x) { return x[0].clone().masked_fill_(x[1], 2); }),
      Case("where", {Mask({4, 5}), {{4, 5}}, {{5}}},
           [](const T& x) { return at::where(x[0], x[1], x[2]); }),
      Case("where of a number", {Mask({4, 1}), {{4, 5}}},
           [](const T& x) { return at::where(x[0], x[1], 3); }, {"0:1"}),
  };
}

std::vector<OpCase> Casts() {
  return {
      Case("to float", {{{4, 5}}},
           [](const T& x) {
             return x[0].to(at::kFloat).to(at::kDouble) * 0 + x[0];
           }),
      Case("to integers", {{{4, 5}}},
           [](const T& x) { return (x[0] * 5).to(at::kLong); }),
      Case("to the same", {{{4, 5}}},
           [](const T& x) { return x[0].to(at::kDouble) * 2; }),
      Case("type_as", {Index({4, 5}, 3), {{4, 5}}},
           [](const T& x) { return x[0].type_as(x[1]); }, {"1:*"}),
      Case("to as another", {{{4, 5}}, Index({2, 3}, 5)},
           [](const T& x) { return (x[0] * 5).to(x[1]); }),
      Case("contiguous", {{{4, 5}}},
           [](const T& x) { return x[0].t().contiguous().clone(); }),
      Case("copy_", {{{4, 5}}, {{5}}},
           [](const T& x) { return x[0].clone().copy_(x[1]); }),
      Case("zero_ and fill_", {{{4, 5}}},
           [](const T& x) {
             return x[0].clone().zero_() + x[0].clone().fill_(2) * x[0];
           }),
  };
}

TEST(PointwiseRules, ArithmeticMatchesTheWhole) { CheckOnRanks(Arithmetic()); }

TEST(PointwiseRules, OptionsMatchTheWhole) { CheckOnRanks(WithOptions()); }

TEST(PointwiseRules, MasksMatchTheWhole) { CheckOnRanks(Masks()); }

TEST(PointwiseRules, CastsMatchTheWhole) { CheckOnRanks(Casts()); }

TEST(PointwiseRules, WritesMatchTheWhole) { CheckOnRanks(InPlace()); }

TEST(PointwiseRules, FunctionsMatchTheWhole) { CheckOnRanks(Functions()); }

}  // namespace
}  // namespace fsdp::spmd
