// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/split_backward.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fsdp/module/activation_checkpoint.h"
#include "gtest/gtest.h"
#include "tests/fsdp/operator_counts.h"
#include "torch/autograd.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

Tensor Leaf(at::IntArrayRef sizes) {
  return torch::randn(sizes, torch::kDouble).set_requires_grad(true);
}

Tensors GradientsOf(const Tensors& leaves) {
  Tensors gradients;
  for (const Tensor& leaf : leaves) {
    gradients.push_back(leaf.grad().defined() ? leaf.grad().clone() : Tensor());
    leaf.mutable_grad() = Tensor();
  }
  return gradients;
}

void ExpectSame(const Tensors& actual, const Tensors& expected,
                const std::string& text) {
  ASSERT_EQ(actual.size(), expected.size()) << text;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].defined(), expected[i].defined()) << text << i;
    if (!actual[i].defined()) continue;
    EXPECT_TRUE(torch::allclose(actual[i], expected[i], 1e-12, 1e-14))
        << text << i;
  }
}

// Both parts give the gradients of one backward.
void ExpectSplits(const std::function<Tensors()>& forward,
                  const Tensors& inputs, const Tensors& weights,
                  const std::string& text) {
  const auto gradients_for = [](const Tensors& outputs) {
    Tensors gradients;
    for (const Tensor& output : outputs) {
      gradients.push_back(torch::full_like(output, 0.5));
    }
    return gradients;
  };
  Tensors outputs = forward();
  torch::autograd::backward(outputs, gradients_for(outputs));
  const Tensors input_gradients = GradientsOf(inputs);
  const Tensors weight_gradients = GradientsOf(weights);

  outputs = forward();
  SplitBackward split(outputs, gradients_for(outputs), inputs);
  EXPECT_FALSE(split.is_whole()) << text;
  const Tensors computed = split.ComputeInputGradients();
  ExpectSame(computed, input_gradients, text + ", input ");
  for (const Tensor& weight : weights) {
    EXPECT_FALSE(weight.grad().defined()) << text;
  }
  outputs.clear();
  split.AccumulateWeightGradients();
  ExpectSame(GradientsOf(weights), weight_gradients, text + ", weight ");
  for (const Tensor& input : inputs) EXPECT_FALSE(input.grad().defined());
}

TEST(SplitBackward, GivesTheGradientsOfOneBackward) {
  torch::manual_seed(1);
  const Tensor x = Leaf({3, 4}), y = Leaf({3, 4});
  const Tensor w = Leaf({4, 4}), v = Leaf({4, 4}), b = Leaf({4});
  const auto linear = [](const Tensor& in, const Tensor& weight,
                         const Tensor& bias) {
    return torch::addmm(bias, in, weight.t());
  };
  ExpectSplits([&] { return Tensors{linear(x, w, b)}; }, {x}, {w, b}, "linear");
  ExpectSplits(
      [&] { return Tensors{linear(torch::gelu(linear(x, w, b)), v, b) + x}; },
      {x}, {w, v, b}, "a layer whose products share a bias");
  ExpectSplits(
      [&] { return Tensors{x.mm(w).relu().mm(w).mm(v * v).mm(w.t())}; }, {x},
      {w, v}, "a weight that is used three times");
  ExpectSplits(
      [&] {
        const Tensor shared = w * v;
        return Tensors{x.mm(shared).tanh().mm(shared)};
      },
      {x}, {w, v}, "a product of weights that is used twice");
  ExpectSplits(
      [&] {
        return Tensors{x.mm(w), y.mm(w) * x.sum(), v.sin()};
      },
      {x, y}, {w, v}, "several inputs, outputs, and one of a weight");
  ExpectSplits(
      [&] {
        return Tensors{x.mm(w) + 0 * v.sum(), x * 2};
      },
      {x}, {w, v}, "an output that no weight is in");
  ExpectSplits(
      [&] {
        const auto parts = x.mm(w).chunk(2, 1);
        return Tensors{parts[0] * b.narrow(0, 0, 2), parts[1].exp()};
      },
      {x}, {w, b}, "a node with several outputs");
  ExpectSplits([&] { return Tensors{x.mm(w)}; }, {x, y}, {w},
               "an input that is not used");
  ExpectSplits([&] { return Tensors{w.mm(v)}; }, {x}, {w, v},
               "no input is used");
  ExpectSplits([&] { return Tensors{x.mm(w.detach())}; }, {x}, {w},
               "a frozen weight");
  ExpectSplits([&] { return Tensors{torch::layer_norm(x, {4}, b, b)}; }, {x},
               {b}, "a norm");
  ExpectSplits([&] { return Tensors{w.mm(v)}; }, {}, {w, v}, "no inputs");
  ExpectSplits([&] { return Tensors{}; }, {x}, {w}, "no outputs");
}

torch::nn::Sequential MakeLayers() {
  torch::nn::Sequential layers;
  for (int i = 0; i < 4; ++i) {
    layers->push_back(torch::nn::Linear(8, 8));
    layers->push_back(torch::nn::GELU());
  }
  return layers;
}

// The cost: as many products as one backward, in two halves, and each of the
// other operators once.
TEST(SplitBackward, ComputesEachProductOnce) {
  torch::manual_seed(2);
  torch::nn::Sequential layers = MakeLayers();
  const Tensor x = torch::randn({5, 8}).set_requires_grad(true);
  const auto products = [](const OperatorCounts& counts) {
    return counts.calls("aten::mm");
  };
  const auto activations = [](const OperatorCounts& counts) {
    return counts.calls("aten::gelu_backward");
  };
  Tensor output = layers->forward(x);
  {
    const OperatorCounts counts;
    output.backward(torch::ones_like(output));
    ASSERT_EQ(products(counts), 8);
    ASSERT_EQ(activations(counts), 4);
  }
  output = layers->forward(x);
  SplitBackward split({output}, {torch::ones_like(output)}, {x});
  {
    const OperatorCounts counts;
    split.ComputeInputGradients();
    EXPECT_EQ(products(counts), 4);
    EXPECT_EQ(activations(counts), 4);
  }
  {
    const OperatorCounts counts;
    split.AccumulateWeightGradients();
    EXPECT_EQ(products(counts), 4);
    EXPECT_EQ(activations(counts), 0);
    // The biases' sums.
    EXPECT_EQ(counts.calls("aten::sum"), 4);
  }
}

// What the second part does not need is freed after the first; the rest after
// the second.
TEST(SplitBackward, FreesTheGraph) {
  const Tensor x = Leaf({3, 4}), w = Leaf({4, 4});
  Tensor h = x.mm(w);
  Tensor activation = h.exp();  // saved for its own backward alone
  Tensor output = activation.sin().mm(w);
  const auto saved = activation.getIntrusivePtr();
  activation = h = Tensor();
  SplitBackward split({output}, {torch::ones_like(output)}, {x});
  output = Tensor();
  EXPECT_GT(saved->storage().use_count(), 1);
  split.ComputeInputGradients();
  EXPECT_EQ(saved->storage().use_count(), 1);
  split.AccumulateWeightGradients();
  EXPECT_TRUE(w.grad().defined());
}

// Hooks on weights run in the second part, once.
TEST(SplitBackward, RunsHooksOfWeightsInTheSecondPart) {
  const Tensor x = Leaf({3, 4}), w = Leaf({4, 4});
  int calls = 0;
  w.register_hook([&](const Tensor&) { ++calls; });
  const Tensor output = x.mm(w).relu().mm(w);
  SplitBackward split({output}, {torch::ones_like(output)}, {x});
  split.ComputeInputGradients();
  EXPECT_EQ(calls, 0);
  split.AccumulateWeightGradients();
  EXPECT_EQ(calls, 1);
}

TEST(SplitBackward, ACheckpointIsNotSplit) {
  torch::manual_seed(3);
  const Tensor x = Leaf({3, 4}), w = Leaf({4, 4}), v = Leaf({4, 4});
  const auto forward = [&] {
    return checkpoint([&](const Tensor& in) { return in.mm(w).tanh(); }, x)
        .mm(v);
  };
  forward().sum().backward();
  const Tensors expected = GradientsOf({x, w, v});
  const Tensor output = forward();
  SplitBackward split({output}, {torch::ones_like(output)}, {x});
  EXPECT_TRUE(split.is_whole());
  const Tensors inputs = split.ComputeInputGradients();
  ExpectSame({inputs.at(0), w.grad(), v.grad()}, expected, "");
  split.AccumulateWeightGradients();
  ExpectSame({w.grad(), v.grad()}, {expected[1], expected[2]}, "");
}

}  // namespace
}  // namespace fsdp::testing
