// SPDX-License-Identifier: Apache-2.0
// Unchanged torch::nn modules between two Linears that a plan cuts, so that
// their inputs lie in parts on the ranks: with rules for their operators, and
// without.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using torch::Tensor;
using torch::nn::Module;

template <typename Layer>
struct SandwichImpl : Module {
  SandwichImpl(int64_t in, Layer layer_, int64_t out)
      : first(register_module("first", torch::nn::Linear(in, in))),
        layer(register_module("layer", std::move(layer_))),
        last(register_module("last", torch::nn::Linear(out, 2))) {}
  torch::nn::Linear first;
  Layer layer;
  torch::nn::Linear last;
};

template <typename Layer>
struct Zoo {
  int64_t in, out;
  std::function<Layer()> make;
  std::function<Tensor(Layer&, const Tensor&)> call;
  std::vector<int64_t> sizes;       // the input's to `first`
  ParallelizePlan plan = {};        // for modules below `layer`
  bool every_one_has_rule = false;  // whether nothing may be gathered

  Tensor Run(SandwichImpl<Layer>& model) const {
    torch::manual_seed(11);
    const Tensor x = torch::randn(sizes);
    return model.last(call(model.layer, model.first(x)));
  }
};

Tensor WholeGradient(const Tensor& parameter) {
  const auto whole = dtensor_of(parameter);
  if (!whole.has_value()) return parameter.grad();
  const auto gradient = whole->grad();
  return gradient.has_value() ? gradient->full_tensor() : Tensor();
}

// The output and all gradients are equal to those in one process.
template <typename Layer>
void ExpectSame(const std::string& name, const Zoo<Layer>& zoo) {
  SCOPED_TRACE(name);
  const auto make = [&] {
    torch::manual_seed(7);
    return std::make_shared<SandwichImpl<Layer>>(zoo.in, zoo.make(), zoo.out);
  };
  const auto whole = make();
  const auto model = make();
  ParallelizePlan plan = {{"first", ColwiseParallel()},
                          {"last", RowwiseParallel()}};
  plan.insert(plan.end(), zoo.plan.begin(), zoo.plan.end());
  const DeviceMesh mesh = init_device_mesh("cpu", {get_world_size()}, {"tp"});
  parallelize_module(*model, mesh, plan);
  Tensor output;
  if (zoo.every_one_has_rule) {
    const StrictLayouts strict;
    output = zoo.Run(*model);
  } else {
    output = zoo.Run(*model);
  }
  const Tensor expected = zoo.Run(*whole);
  EXPECT_TRUE(torch::allclose(full_tensor(output), expected, 1e-9, 1e-12));
  output.pow(2).sum().backward();
  expected.pow(2).sum().backward();
  const auto parameters = whole->named_parameters();
  for (const auto& item : model->named_parameters()) {
    const Tensor& wanted = parameters[item.key()].grad();
    const Tensor gradient = WholeGradient(item.value());
    // A lookup gives no gradient to the parameters that compute the indices.
    ASSERT_EQ(gradient.defined(), wanted.defined()) << item.key();
    if (!wanted.defined()) continue;
    EXPECT_TRUE(torch::allclose(gradient, wanted, 1e-9, 1e-12)) << item.key();
  }
}

// A layer that takes and returns one tensor.
template <typename Layer>
Tensor CallLayer(Layer& layer, const Tensor& x) {
  return layer(x);
}

template <typename Layer>
void ExpectLayer(const std::string& name, int64_t in, int64_t out, Layer layer,
                 std::vector<int64_t> sizes, bool every_one_has_rule) {
  // Each model has a layer with the same weights.
  ExpectSame<Layer>(
      name, {.in = in,
             .out = out,
             .make =
                 [&] {
                   auto copy =
                       std::dynamic_pointer_cast<typename Layer::ContainedType>(
                           layer->clone());
                   return Layer(std::move(copy));
                 },
             .call = CallLayer<Layer>,
             .sizes = std::move(sizes),
             .every_one_has_rule = every_one_has_rule});
}

TEST(ParallelModuleZoo, LayersWithRules) {
  RunRanks(3, [] {
    StartRankInDouble();
    constexpr bool kStrict = true;
    ExpectLayer("ReLU", 7, 7, torch::nn::ReLU(), {4, 7}, kStrict);
    ExpectLayer("GELU", 7, 7, torch::nn::GELU(), {4, 7}, kStrict);
    ExpectLayer("Softplus", 7, 7, torch::nn::Softplus(), {4, 7}, kStrict);
    ExpectLayer("Dropout", 7, 7, torch::nn::Dropout(0.4), {4, 7}, kStrict);
    ExpectLayer("Flatten", 5, 15, torch::nn::Flatten(), {4, 3, 5}, kStrict);
  });
}

// They compute along the dimension that is cut.
TEST(ParallelModuleZoo, LayersThatGather) {
  RunRanks(3, [] {
    StartRankInDouble();
    constexpr bool kLoose = false;
    ExpectLayer("LayerNorm", 7, 7,
                torch::nn::LayerNorm(torch::nn::LayerNormOptions({7})), {4, 7},
                kLoose);
    ExpectLayer("Softmax", 7, 7, torch::nn::Softmax(-1), {4, 7}, kLoose);
    ExpectLayer("GLU", 8, 4, torch::nn::GLU(-1), {4, 8}, kLoose);
    ExpectLayer("BatchNorm1d", 7, 7, torch::nn::BatchNorm1d(7), {4, 7}, kLoose);
    ExpectLayer("MaxPool1d", 7, 3, torch::nn::MaxPool1d(2), {4, 3, 7}, kLoose);
    ExpectLayer("PReLU", 7, 7,
                torch::nn::PReLU(torch::nn::PReLUOptions().num_parameters(3)),
                {4, 3, 7}, kLoose);
  });
}

TEST(ParallelModuleZoo, Recurrent) {
  RunRanks(2, [] {
    StartRankInDouble();
    using torch::nn::GRU;
    using torch::nn::LSTM;
    ExpectSame<LSTM>("LSTM", {.in = 5,
                              .out = 7,
                              .make = [] { return LSTM(5, 7); },
                              .call =
                                  [](LSTM& lstm, const Tensor& x) {
                                    const auto [h, state] = lstm(x);
                                    return std::get<0>(lstm(x, state)) + h;
                                  },
                              .sizes = {4, 3, 5}});
    ExpectSame<GRU>(
        "GRU",
        {.in = 5,
         .out = 14,
         .make =
             [] {
               return GRU(
                   torch::nn::GRUOptions(5, 7).num_layers(2).bidirectional(
                       true));
             },
         .call = [](GRU& gru, const Tensor& x) { return std::get<0>(gru(x)); },
         .sizes = {4, 3, 5}});
  });
}

TEST(ParallelModuleZoo, Attention) {
  RunRanks(2, [] {
    StartRankInDouble();
    using torch::nn::MultiheadAttention;
    using torch::nn::TransformerEncoder;
    ExpectSame<MultiheadAttention>(
        "MultiheadAttention",
        {.in = 6,
         .out = 6,
         .make = [] { return MultiheadAttention(6, 2); },
         .call =
             [](MultiheadAttention& attention, const Tensor& x) {
               return std::get<0>(attention(x, x + 1, x));
             },
         .sizes = {4, 3, 6},
         .plan = {{"layer.out_proj", RowwiseParallel()}}});
    for (const double dropout : {0.0, 0.2}) {
      ExpectSame<TransformerEncoder>(
          "TransformerEncoder",
          {.in = 6,
           .out = 6,
           .make =
               [=] {
                 return TransformerEncoder(torch::nn::TransformerEncoderOptions(
                     torch::nn::TransformerEncoderLayerOptions(6, 2)
                         .dim_feedforward(11)
                         .dropout(dropout),
                     2));
               },
           .call = CallLayer<TransformerEncoder>,
           .sizes = {4, 3, 6},
           .plan = {{"layer.layers.*.linear1", ColwiseParallel()},
                    {"layer.layers.*.linear2", RowwiseParallel()},
                    {"layer.layers.*.norm?", ReplicateParallel()}}});
    }
  });
}

TEST(ParallelModuleZoo, ConvolutionsAndTables) {
  RunRanks(2, [] {
    StartRankInDouble();
    using torch::nn::Bilinear;
    using torch::nn::Embedding;
    using torch::nn::EmbeddingBag;
    using torch::nn::Sequential;
    ExpectSame<Sequential>(
        "Conv2d, BatchNorm2d, GroupNorm",
        {.in = 5,
         .out = 5,
         .make =
             [] {
               return Sequential(
                   torch::nn::Conv2d(
                       torch::nn::Conv2dOptions(2, 5, 3).padding(1)),
                   torch::nn::BatchNorm2d(5), torch::nn::GroupNorm(5, 5));
             },
         .call = [](Sequential& layers,
                    const Tensor& x) { return layers->forward(x); },
         .sizes = {4, 2, 3, 5}});
    ExpectSame<Bilinear>("Bilinear", {.in = 5,
                                      .out = 4,
                                      .make = [] { return Bilinear(5, 5, 4); },
                                      .call =
                                          [](Bilinear& layer, const Tensor& x) {
                                            return layer(x, x.flip(0));
                                          },
                                      .sizes = {3, 5}});
    const auto indices = [](const Tensor& x) {
      return (x.detach().abs() * 100).to(torch::kLong).remainder(8);
    };
    for (const auto& style : {ColwiseParallel(), RowwiseParallel()}) {
      ExpectSame<Embedding>(
          "Embedding",
          {.in = 5,
           .out = 3,
           .make =
               [] {
                 return Embedding(
                     torch::nn::EmbeddingOptions(8, 3).padding_idx(1));
               },
           .call = [=](Embedding& table,
                       const Tensor& x) { return table(indices(x)); },
           .sizes = {3, 5},
           .plan = {{"layer", style}}});
    }
    ExpectSame<EmbeddingBag>(
        "EmbeddingBag",
        {.in = 5,
         .out = 3,
         .make = [] { return EmbeddingBag(8, 3); },
         .call = [=](EmbeddingBag& table,
                     const Tensor& x) { return table(indices(x)); },
         .sizes = {3, 5}});
  });
}

}  // namespace
}  // namespace fsdp::testing
