// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/parallel/spmd/rules/op_case.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/parallel/spmd/axis.h"
#include "fsdp/parallel/spmd/handler.h"
#include "fsdp/parallel/spmd/moves.h"
#include "fsdp/parallel/spmd/operand.h"
#include "fsdp/parallel/spmd/sharded.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/autograd.h"

namespace fsdp::spmd {
namespace {

using Layouts = std::vector<Layout>;

// A case with more combinations than this is thinned out.
constexpr size_t kMaxCombinations = 40;

bool IsReal(const Input& input) {
  return input.kind == Input::Kind::kReal ||
         input.kind == Input::Kind::kPositive;
}

at::Tensor MakeInput(const Input& input) {
  switch (input.kind) {
    case Input::Kind::kReal:
      return torch::randn(input.sizes).requires_grad_();
    case Input::Kind::kPositive:
      return torch::rand(input.sizes).add_(0.5).requires_grad_();
    case Input::Kind::kIndex:
      return torch::randint(input.bound, input.sizes, torch::kLong);
    case Input::Kind::kMask:
      return torch::rand(input.sizes) < 0.5;
  }
  return {};
}

Layouts PossibleLayouts(const Input& input) {
  Layouts found = {Layout::Same()};
  for (size_t d = 0; d < input.sizes.size(); ++d) {
    found.push_back(Layout::Shard(static_cast<int64_t>(d)));
  }
  if (!input.sizes.empty() && input.sizes[0] % 2 == 0) {
    found.push_back(Layout::Shard(0, /*blocks=*/2));
  }
  if (!input.sizes.empty() && input.sizes.size() < 3) {
    found.push_back(Layout::Shard(static_cast<int64_t>(input.sizes.size()) - 1,
                                  1, /*balanced=*/true));
  }
  if (IsReal(input)) found.push_back(Layout::Partial());
  return found;
}

// Every layout combination with something in parts.
std::vector<Layouts> LayoutCombinations(const std::vector<Input>& inputs) {
  std::vector<Layouts> all = {{}};
  for (const Input& input : inputs) {
    std::vector<Layouts> longer;
    for (const Layouts& before : all) {
      for (const Layout& layout : PossibleLayouts(input)) {
        longer.push_back(before);
        longer.back().push_back(layout);
      }
    }
    all = std::move(longer);
  }
  all.erase(all.begin());  // nothing in parts
  if (all.size() <= kMaxCombinations) return all;
  // The single ones, and every n-th of the rest.
  std::vector<Layouts> few;
  const size_t step = all.size() / kMaxCombinations + 1;
  for (size_t i = 0; i < all.size(); ++i) {
    size_t in_parts = 0;
    for (const Layout& layout : all[i]) in_parts += layout.is_same() ? 0 : 1;
    if (in_parts == 1 || i % step == 0) few.push_back(all[i]);
  }
  return few;
}

bool MayGather(const OpCase& op_case, const Layouts& layouts) {
  for (const std::string& pattern : op_case.gathers) {
    for (size_t i = 0; i < layouts.size(); ++i) {
      const Layout& layout = layouts[i];
      if (layout.is_same()) continue;
      const std::string what = layout.is_shard()
                                   ? absl::StrCat(i, ":", layout.dim)
                                   : absl::StrCat(i, ":partial");
      if (pattern == what || pattern == absl::StrCat(i, ":*")) return true;
      const bool pieces = layout.blocks > 1 || layout.balanced;
      if (pieces && pattern == absl::StrCat(i, ":pieces")) return true;
    }
  }
  return false;
}

// The gradients for `inputs` from a sum over `results` that depends on every
// element; empty if nothing has a gradient.
Tensors ComputeGradients(const Tensors& results, const Tensors& inputs) {
  at::Tensor sum;
  for (const at::Tensor& result : results) {
    if (!result.requires_grad()) continue;
    const at::Tensor weights =
        torch::linspace(0.5, 2, result.numel()).view(result.sizes());
    const at::Tensor term = (result * weights).sum();
    sum = sum.defined() ? sum + term : term;
  }
  if (!sum.defined()) return {};
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    if (input.requires_grad()) leaves.push_back(input);
  }
  return torch::autograd::grad({sum}, leaves, {}, {}, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

void ExpectEqual(const at::Tensor& actual, const at::Tensor& expected,
                 const std::string& what) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what;
  if (!actual.defined()) return;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  EXPECT_EQ(actual.scalar_type(), expected.scalar_type()) << what;
  const bool equal = actual.is_floating_point()
                         ? at::allclose(actual, expected, 1e-9, 1e-11, true)
                         : at::equal(actual, expected);
  EXPECT_TRUE(equal) << what << ": " << actual << "\n instead of\n" << expected;
}

class Checker {
 public:
  explicit Checker(AxisPtr axis) : axis_(std::move(axis)) {}

  void Check(const OpCase& op_case) {
    torch::manual_seed(1);
    Tensors inputs;
    for (const Input& input : op_case.inputs) {
      inputs.push_back(MakeInput(input));
    }
    torch::manual_seed(2);
    const Tensors expected = op_case.op(inputs);
    const Tensors gradients = ComputeGradients(expected, inputs);
    for (const Layouts& layouts : LayoutCombinations(op_case.inputs)) {
      CheckLayouts(op_case, layouts, inputs, expected, gradients);
    }
  }

 private:
  void CheckLayouts(const OpCase& op_case, const Layouts& layouts,
                    const Tensors& inputs, const Tensors& expected,
                    const Tensors& gradients) {
    const std::string what = absl::StrCat(
        op_case.name, " on ", axis_->size, " ranks of ",
        absl::StrJoin(layouts, ", ", [](std::string* out, const Layout& l) {
          absl::StrAppend(out, to_string(l));
        }));
    Tensors parts;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Sizes whole = inputs[i].sizes().vec();
      parts.push_back(
          Wrap(Move(inputs[i], Layout::Same(), layouts[i], whole, axis_),
               layouts[i], axis_, whole));
    }
    gathered_operators(/*reset=*/true);
    torch::manual_seed(2);
    Tensors results = op_case.op(parts);
    const auto gathered = gathered_operators();
    if (!MayGather(op_case, layouts)) {
      EXPECT_TRUE(gathered.empty())
          << what << " gathered in " << gathered.begin()->first;
    }
    for (at::Tensor& result : results) {
      result = Operand(result, axis_).To(Layout::Same());
    }
    const Tensors actual_gradients = ComputeGradients(results, inputs);
    ASSERT_EQ(results.size(), expected.size()) << what;
    for (size_t i = 0; i < expected.size(); ++i) {
      ExpectEqual(results[i], expected[i], what);
    }
    ASSERT_EQ(actual_gradients.size(), gradients.size()) << what;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const at::Tensor& actual = actual_gradients[i];
      // An unused argument has no gradient, and zeros if it was moved.
      const bool unused = !gradients[i].defined() && actual.defined();
      ExpectEqual(actual, unused ? at::zeros_like(actual) : gradients[i],
                  absl::StrCat("gradient ", i, " of ", what));
    }
  }

  AxisPtr axis_;
};

}  // namespace

void CheckOnRanks(const std::vector<OpCase>& cases) {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    testing::RunRanks(ranks, [&cases, ranks] {
      testing::StartRankInDouble();
      InstallHandler();
      Checker checker(InternAxis(init_device_mesh("cpu", {ranks})));
      for (const OpCase& op_case : cases) checker.Check(op_case);
    });
  }
}

}  // namespace fsdp::spmd
