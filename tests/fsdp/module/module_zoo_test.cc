// SPDX-License-Identifier: Apache-2.0
// Unchanged torch::nn modules, and modules that read their parameters in
// unusual ways, under fully_shard. For the ways to run a model see
// ways_to_run_test.cc.

#include "tests/fsdp/module/module_zoo.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using torch::Tensor;
using torch::nn::Module;

// ---- Layers ----------------------------------------------------------------

// The layer under test between two others, so that it is neither first nor
// last.
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
void ExpectLayer(const std::string& name, int64_t in, int64_t out,
                 std::function<Layer()> make,
                 std::function<Tensor(Layer&, const Tensor&)> call,
                 std::vector<int64_t> sizes, FullyShardOptions options = {}) {
  using Impl = SandwichImpl<Layer>;
  ExpectSame<Impl>(name, {.make =
                              [=] {
                                auto model =
                                    std::make_shared<Impl>(in, make(), out);
                                return model;
                              },
                          .run = [=](Impl& model) -> Tensors {
                            const Tensor middle =
                                call(model.layer, model.first(Input(sizes)));
                            return {middle, Trained(model.last(middle))};
                          },
                          .options = options});
}

void ExpectRecurrent() {
  StartRankInDouble();
  using torch::nn::GRU;
  using torch::nn::LSTM;
  ExpectLayer<LSTM>(
      "LSTM", 5, 7, [] { return LSTM(5, 7); },
      [](LSTM& lstm, const Tensor& x) { return std::get<0>(lstm(x)); },
      {4, 3, 5});
  ExpectLayer<LSTM>(
      "LSTM with a state and dropout", 5, 7,
      [] {
        return LSTM(torch::nn::LSTMOptions(5, 7).num_layers(2).dropout(0.3));
      },
      [](LSTM& lstm, const Tensor& x) {
        const auto [h, state] = lstm(x);
        return std::get<0>(lstm(x, state)) + h;
      },
      {4, 3, 5}, {.reshard_after_forward = false});
  ExpectLayer<GRU>(
      "GRU, two directions, two layers", 5, 14,
      [] {
        return GRU(
            torch::nn::GRUOptions(5, 7).num_layers(2).bidirectional(true));
      },
      [](GRU& gru, const Tensor& x) { return std::get<0>(gru(x)); }, {4, 3, 5});
}

TEST(ModuleZoo, Recurrent) { RunRanks(2, ExpectRecurrent); }

TEST(ModuleZoo, RecurrentUnevenShards) { RunRanks(3, ExpectRecurrent); }

TEST(ModuleZoo, Attention) {
  RunRanks(3, [] {
    StartRankInDouble();
    using torch::nn::MultiheadAttention;
    using torch::nn::TransformerEncoder;
    ExpectLayer<MultiheadAttention>(
        "MultiheadAttention", 6, 6, [] { return MultiheadAttention(6, 2); },
        [](MultiheadAttention& attention, const Tensor& x) {
          return std::get<0>(attention(x, x + 1, x));
        },
        {4, 3, 6});
    const auto make = [] {
      return TransformerEncoder(torch::nn::TransformerEncoderOptions(
          torch::nn::TransformerEncoderLayerOptions(6, 2)
              .dim_feedforward(11)
              .dropout(0.2),
          2));
    };
    const auto call = [](TransformerEncoder& encoder, const Tensor& x) {
      return encoder(x);
    };
    ExpectLayer<TransformerEncoder>("TransformerEncoder", 6, 6, make, call,
                                    {4, 3, 6});
    ExpectLayer<TransformerEncoder>("TransformerEncoder in eval", 6, 6,
                                    [make] {
                                      TransformerEncoder encoder = make();
                                      encoder->eval();
                                      return encoder;
                                    },
                                    call, {4, 3, 6});
  });
}

TEST(ModuleZoo, Convolution) {
  RunRanks(3, [] {
    StartRankInDouble();
    using torch::nn::ConvTranspose2d;
    using torch::nn::Sequential;
    ExpectLayer<Sequential>(
        "Conv2d, BatchNorm2d, PReLU", 5, 5,
        [] {
          return Sequential(
              torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 5, 3).padding(1)),
              torch::nn::BatchNorm2d(5),
              torch::nn::PReLU(torch::nn::PReLUOptions().num_parameters(5)),
              torch::nn::GroupNorm(5, 5));
        },
        [](Sequential& layers, const Tensor& x) { return layers->forward(x); },
        {4, 2, 3, 5});
    ExpectLayer<ConvTranspose2d>(
        "ConvTranspose2d", 5, 9,
        [] {
          return ConvTranspose2d(
              torch::nn::ConvTranspose2dOptions(2, 4, 3).stride(2).padding(1));
        },
        [](ConvTranspose2d& layer, const Tensor& x) { return layer(x); },
        {4, 2, 3, 5});
  });
}

TEST(ModuleZoo, TablesAndBilinear) {
  RunRanks(3, [] {
    StartRankInDouble();
    using torch::nn::Bilinear;
    using torch::nn::Embedding;
    using torch::nn::EmbeddingBag;
    ExpectLayer<Bilinear>(
        "Bilinear", 5, 4, [] { return Bilinear(5, 5, 4); },
        [](Bilinear& layer, const Tensor& x) { return layer(x, x.flip(0)); },
        {3, 5});
    const auto indices = [](const Tensor& x) {
      return (x.detach().abs() * 100).to(torch::kLong).remainder(8);
    };
    ExpectLayer<Embedding>(
        "Embedding", 5, 3,
        [] {
          return Embedding(torch::nn::EmbeddingOptions(8, 3).padding_idx(1));
        },
        [=](Embedding& table, const Tensor& x) { return table(indices(x)); },
        {3, 5});
    for (const bool mean : {true, false}) {
      ExpectLayer<EmbeddingBag>(
          "EmbeddingBag", 5, 3,
          [mean] {
            auto options = torch::nn::EmbeddingBagOptions(8, 3);
            if (mean) options.mode(torch::kMean);
            if (!mean) options.mode(torch::kSum);
            return EmbeddingBag(options);
          },
          [=](EmbeddingBag& table, const Tensor& x) {
            return table(indices(x));
          },
          {3, 5});
    }
  });
}

// Each forward looks up rows as if they had been renormalised for good. Shards
// keep their values, as in PyTorch, which drops the unsharded parameter too.
TEST(ModuleZoo, AnEmbeddingWithMaxNorm) {
  RunRanks(2, [] {
    StartRankInDouble();
    using torch::nn::EmbeddingImpl;
    const auto make = [] {
      return std::make_shared<EmbeddingImpl>(
          torch::nn::EmbeddingOptions(8, 3).max_norm(0.5));
    };
    ExpectSame("Embedding with max_norm",
               Zoo<EmbeddingImpl>{
                   .make = make,
                   .run = [](EmbeddingImpl& table) -> Tensors {
                     return {Trained(table.forward(torch::randint(8, {3, 5})))};
                   },
                   .num_steps = 1});
    torch::manual_seed(42);
    const std::shared_ptr<EmbeddingImpl> table = make();
    const Tensor before = table->weight.detach().clone();
    fully_shard(table);
    for (int i = 0; i < 2; ++i) {
      const Tensor rows = table->forward(torch::arange(8));
      EXPECT_LE(rows.norm(2, 1).max().item<double>(), 0.5 + 1e-6);
    }
    get_fsdp_module(*table).reshard();
    EXPECT_TRUE(fsdp::parameters(*table)[0].full_tensor().equal(before));
  });
}

// ---- Parameters read in unusual ways ---------------------------------------

struct ContainersImpl : Module {
  ContainersImpl()
      : list(register_module("list", torch::nn::ParameterList())),
        dict(register_module("dict", torch::nn::ParameterDict())),
        linear(register_module("linear", torch::nn::Linear(4, 3))) {
    list->append(torch::randn({5, 4}));
    list->append(torch::randn({1, 4}));
    dict->insert("scale", torch::randn({3}));
  }
  Tensor forward(const Tensor& x) {
    Tensor h = torch::matmul(x, list[0]) + list[1];
    for (const auto& item : *list) h = h + item.value().sum();
    return linear(h) * dict["scale"];
  }
  torch::nn::ParameterList list;
  torch::nn::ParameterDict dict;
  torch::nn::Linear linear;
};

TEST(ModuleZoo, ListsAndDictionariesOfParameters) {
  RunRanks(3, [] {
    StartRankInDouble();
    ExpectSame<ContainersImpl>(
        "containers",
        {.make = [] { return std::make_shared<ContainersImpl>(); },
         .run = [](ContainersImpl& model) -> Tensors {
           const Tensor x = Input({6, 5});
           Tensor evaluated;
           {
             // Without grad mode, shards are read as shards unless a scope
             // marks a forward.
             const torch::NoGradGuard no_grad;
             evaluated = fsdp::forward(model, x);
           }
           return {evaluated, Trained(model.forward(x))};
         }});
  });
}

// y = x w, with forward and backward written explicitly.
struct ByHand : torch::autograd::Function<ByHand> {
  static Tensor forward(torch::autograd::AutogradContext* context,
                        const Tensor& x, const Tensor& weight) {
    context->save_for_backward({x, weight});
    return x.matmul(weight);
  }
  static Tensors backward(torch::autograd::AutogradContext* context,
                          const Tensors& grads) {
    const Tensors saved = context->get_saved_variables();
    return {grads[0].matmul(saved[1].t()), saved[0].t().matmul(grads[0])};
  }
};

TEST(ModuleZoo, CustomFunctionsAndViewsOfWeights) {
  RunRanks(3, [] {
    StartRankInDouble();
    ExpectSame("a function that saves the weight",
               Readers([](ReadersImpl& m) -> Tensors {
                 const Tensor h = ByHand::apply(Input({3, 6}), m.a->weight);
                 return {Trained(ByHand::apply(m.norm(h), m.b->weight))};
               }));
    ExpectSame(
        "views", Readers([](ReadersImpl& m) -> Tensors {
          const Tensor x = Input({3, 6});
          const Tensors parts = m.a->weight.chunk(2, 1);
          Tensor h = torch::cat({x.matmul(parts[0]), x.matmul(parts[1])}, 1);
          h = m.norm(h).matmul(m.b->weight.t()) + m.b->weight[2];
          h = h * m.a->weight.view({-1}).slice(0, 5, 11);
          return {Trained(h.matmul(m.b->weight.unsqueeze(0)[0]))};
        }));
    ExpectSame("a view taken before another group is used",
               Readers([](ReadersImpl& m) -> Tensors {
                 const Tensor view = m.a->weight.t();
                 const Tensor h = m.norm(Input({3, 6})).matmul(m.b->weight);
                 return {Trained(h.matmul(view))};
               }));
    ExpectSame("a copy in place of a weight",
               Readers([](ReadersImpl& m) -> Tensors {
                 const Tensor x = Input({3, 6});
                 // The first operator takes only parameters, so a scope must
                 // mark the forward.
                 const ForwardScope scope;
                 const Tensor w = m.a->weight.clone() * m.norm(x).sum();
                 return {Trained(x.matmul(w.tanh()).matmul(m.b->weight))};
               }));
  });
}

}  // namespace
}  // namespace fsdp::testing
