// Unchanged modules of torch::nn under fully_shard: outputs, gradients and
// buffers equal those of the same module without it, whose gradients the ranks
// average. In float64, so that rounding hides nothing. The ways to run a model,
// independent of its modules, follow below.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fsdp/engine/module_access.h"
#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "torch/csrc/autograd/autograd.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/nn.h"
#include "torch/optim/sgd.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;
using torch::nn::Module;
using Tensors = std::vector<Tensor>;

void StartRank() {
  at::set_num_threads(1);
  torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
  init_process_group();
}

// Every child that has a forward, in a group of its own, and the rest.
void ShardChildren(const std::shared_ptr<Module>& model,
                   const FullyShardOptions& options) {
  for (const auto& child : model->children()) {
    if (!is_container_without_forward(*child)) fully_shard(child, options);
  }
  fully_shard(model, options);
}

// Different on every rank and in every step, equal in both models.
Tensor Input(at::IntArrayRef sizes) { return torch::randn(sizes); }

// One model of the zoo. `run` does forward and backward, whether sharded or
// not, and returns what to compare.
template <typename Impl>
struct Zoo {
  std::function<std::shared_ptr<Impl>()> make;
  std::function<Tensors(Impl&)> run;
  std::function<void(const std::shared_ptr<Module>&, const FullyShardOptions&)>
      shard = ShardChildren;
  FullyShardOptions options = {};
  int num_steps = 2;
};

template <typename Impl>
Tensors RunOnce(const Zoo<Impl>& zoo, Impl& model, int step) {
  torch::manual_seed(100 * step + get_rank());
  return zoo.run(model);
}

Tensor AverageOverRanks(const Tensor& tensor) {
  Tensors sum{tensor.clone()};
  world_group()->allreduce(sum)->wait();
  return sum[0] / static_cast<double>(get_world_size());
}

void ExpectClose(const Tensor& got, const Tensor& want,
                 const std::string& what) {
  ASSERT_EQ(got.defined(), want.defined()) << what;
  if (!got.defined()) return;
  EXPECT_EQ(got.sizes(), want.sizes()) << what;
  EXPECT_TRUE(torch::allclose(got, want, /*rtol=*/1e-9, /*atol=*/1e-11))
      << what << ": " << (got - want).abs().max().template item<double>();
}

void ExpectSameGradients(Module& model, const Module& reference,
                         const std::string& where) {
  const auto want = reference.named_parameters();
  for (const auto& [name, parameter] : fsdp::named_parameters(model)) {
    const std::optional<DTensor> grad = parameter.grad();
    const Tensor& local = want[name].grad();
    const Tensor average = local.defined() ? AverageOverRanks(local) : Tensor();
    ExpectClose(grad.has_value() ? grad->full_tensor() : Tensor(), average,
                where + " gradient of " + name);
    want[name].mutable_grad() = average;
  }
}

// Inside a rank.
template <typename Impl>
void ExpectSame(const std::string& name, const Zoo<Impl>& zoo) {
  SCOPED_TRACE(name);
  torch::manual_seed(42);
  const std::shared_ptr<Impl> reference = zoo.make();
  torch::manual_seed(42);
  const std::shared_ptr<Impl> model = zoo.make();
  zoo.shard(model, zoo.options);
  ASSERT_EQ(fsdp::named_parameters(*model).size(),
            reference->parameters().size());
  torch::optim::SGD reference_optimizer(reference->parameters(), 0.1);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  for (int step = 0; step < zoo.num_steps; ++step) {
    const std::string where = "step " + std::to_string(step);
    reference_optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
    optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
    const Tensors want = RunOnce(zoo, *reference, step);
    const Tensors got = RunOnce(zoo, *model, step);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ExpectClose(got[i].detach(), want[i].detach(),
                  where + " output " + std::to_string(i));
    }
    ExpectSameGradients(*model, *reference, where);
    const auto buffers = reference->named_buffers();
    for (const auto& item : model->named_buffers()) {
      ExpectClose(item.value(), buffers[item.key()], where + item.key());
    }
    reference_optimizer.step();
    optimizer.step();
  }
  EXPECT_EQ(step_report(*model).unsharded_bytes, 0u);
}

// `output`, after backward of a number made of it.
Tensor Trained(const Tensor& output) {
  (output * output + output).sum().backward();
  return output;
}

// ---- Layers ----------------------------------------------------------------

// The layer under test between two that make it neither first nor last.
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
  StartRank();
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
    StartRank();
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
    StartRank();
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
    StartRank();
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

// Each forward looks up rows as if they had been renormalised for good; shards
// keep their values, as in PyTorch, whose unsharded parameter is dropped too.
TEST(ModuleZoo, AnEmbeddingWithMaxNorm) {
  RunRanks(2, [] {
    StartRank();
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
    StartRank();
    ExpectSame<ContainersImpl>(
        "containers",
        {.make = [] { return std::make_shared<ContainersImpl>(); },
         .run = [](ContainersImpl& model) -> Tensors {
           const Tensor x = Input({6, 5});
           Tensor evaluated;
           {
             // Without grad mode, shards are shards unless a forward says that
             // it is one.
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

struct ReaderImpl : Module {
  ReaderImpl() : weight(register_parameter("weight", torch::randn({6, 6}))) {}
  Tensor weight;
};

// A chain of modules whose one parameter is a matrix.
struct ReadersImpl : Module {
  ReadersImpl()
      : a(register_module("a", std::make_shared<ReaderImpl>())),
        b(register_module("b", std::make_shared<ReaderImpl>())),
        norm(register_module(
            "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})))) {}
  std::shared_ptr<ReaderImpl> a, b;
  torch::nn::LayerNorm norm;
};

Zoo<ReadersImpl> Readers(std::function<Tensors(ReadersImpl&)> run) {
  return {.make = [] { return std::make_shared<ReadersImpl>(); },
          .run = std::move(run)};
}

TEST(ModuleZoo, FunctionsByHandAndViewsOfWeights) {
  RunRanks(3, [] {
    StartRank();
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

// ---- Ways to run -----------------------------------------------------------

Tensor Chain(ReadersImpl& m, const Tensor& x) {
  return m.norm(x.matmul(m.a->weight).tanh()).matmul(m.b->weight);
}

TEST(ModuleZoo, SeveralForwardsAndBackwards) {
  RunRanks(3, [] {
    StartRank();
    ExpectSame("two forwards, one backward",
               Readers([](ReadersImpl& m) -> Tensors {
                 const Tensor first = Chain(m, Input({3, 6}));
                 const Tensor second = Chain(m, Input({2, 6}));
                 Trained(first.sum() * second.sum());
                 return {first, second};
               }));
    ExpectSame("two backwards through one graph",
               Readers([](ReadersImpl& m) -> Tensors {
                 const Tensor y = Chain(m, Input({3, 6}));
                 y.sum().backward({}, /*retain_graph=*/true);
                 y.square().sum().backward();
                 return {y};
               }));
    ExpectSame("two graphs, backward in the order of forward",
               Readers([](ReadersImpl& m) -> Tensors {
                 const Tensor first = Chain(m, Input({3, 6}));
                 const Tensor second = Chain(m, Input({2, 6}));
                 return {Trained(first), Trained(second)};
               }));
    ExpectSame("gradient penalty", Readers([](ReadersImpl& m) -> Tensors {
                 const Tensor x = Input({3, 6}).requires_grad_();
                 const Tensor y = Chain(m, x);
                 const Tensor slope = torch::autograd::grad(
                     {y.square().sum()}, {x}, {}, /*retain_graph=*/true,
                     /*create_graph=*/true)[0];
                 (y.sum() + slope.square().sum()).backward();
                 return {y, slope, x.grad()};
               }));
    ExpectSame("gradients of inputs alone",
               Readers([](ReadersImpl& m) -> Tensors {
                 const Tensor x = Input({3, 6}).requires_grad_();
                 const Tensor y = Chain(m, x);
                 const Tensor slope = torch::autograd::grad({y.sum()}, {x})[0];
                 return {slope, Trained(Chain(m, x))};
               }));
  });
}

TEST(ModuleZoo, GroupsUsedTwiceOrNotAtAll) {
  RunRanks(3, [] {
    StartRank();
    const auto times_a = [](ReadersImpl& m, const Tensor& x) {
      return x.matmul(m.a->weight).tanh();
    };
    for (const bool reshard : {true, false}) {
      Zoo<ReadersImpl> zoo = Readers([=](ReadersImpl& m) -> Tensors {
        const Tensor h = times_a(m, Input({3, 6})).matmul(m.b->weight);
        return {Trained(times_a(m, m.norm(h)))};
      });
      zoo.options.reshard_after_forward = reshard;
      ExpectSame("A, B, A", zoo);
    }
    ExpectSame("A, A", Readers([=](ReadersImpl& m) -> Tensors {
                 return {Trained(times_a(m, times_a(m, Input({3, 6}))))};
               }));
    ExpectSame("an unused group", Readers([=](ReadersImpl& m) -> Tensors {
                 return {Trained(times_a(m, m.norm(Input({3, 6}))))};
               }));
    ExpectSame("an output that nobody uses",
               Readers([=](ReadersImpl& m) -> Tensors {
                 const Tensor x = Input({3, 6});
                 const Tensor unused = m.norm(x).matmul(m.b->weight);
                 return {unused, Trained(times_a(m, x))};
               }));
    ExpectSame("used in one step and not in the next",
               Readers([=, step = 0](ReadersImpl& m) mutable -> Tensors {
                 Tensor h = times_a(m, Input({3, 6}));
                 // Called for both models alternately.
                 if (step++ / 2 % 2 == 0) h = h.matmul(m.b->weight);
                 return {Trained(m.norm(h))};
               }));
  });
}

struct State {
  Tensor value;
  std::vector<std::tuple<Tensor, int>> history;
};

TEST(ModuleZoo, ActivationsThatAreNoTensors) {
  RunRanks(2, [] {
    StartRank();
    ExpectSame("structs", Readers([](ReadersImpl& m) -> Tensors {
                 State state{.value = m.norm(Input({3, 6})), .history = {}};
                 for (const auto& reader : {m.a, m.b}) {
                   state.history.emplace_back(state.value, 1);
                   state.value = state.value.matmul(reader->weight).tanh();
                 }
                 const Tensor sum = state.value + std::get<0>(state.history[1]);
                 return {Trained(sum)};
               }));
  });
}

struct NoInputsImpl : Module {
  NoInputsImpl() : w(register_parameter("w", torch::randn({4, 4}))) {}
  Tensor forward() { return w.matmul(w); }
  Tensor w;
};

TEST(ModuleZoo, ARootWithoutInputsNeedsItsBoundary) {
  RunRanks(2, [] {
    StartRank();
    ExpectSame<NoInputsImpl>(
        "no inputs", {.make = [] { return std::make_shared<NoInputsImpl>(); },
                      .run = [](NoInputsImpl& m) -> Tensors {
                        return {Trained(fsdp::forward(m))};
                      }});
    auto model = std::make_shared<NoInputsImpl>();
    fully_shard(model);
    EXPECT_THAT(ErrorOf([&] { model->forward(); }), HasSubstr("ForwardScope"));
    const ForwardScope scope;
    EXPECT_EQ(model->forward().size(0), 4);
  });
}

TEST(ModuleZoo, ListOfModulesNotFullyRun) {
  RunRanks(3, [] {
    StartRank();
    Zoo<ReadersImpl> zoo = Readers([](ReadersImpl& m) -> Tensors {
      return {Trained(Input({3, 6}).matmul(m.a->weight))};
    });
    zoo.shard = [](const std::shared_ptr<Module>& model,
                   const FullyShardOptions& options) {
      const auto& readers = *model->as<ReadersImpl>();
      fully_shard({readers.a, readers.norm.ptr()}, options);
      fully_shard(model, options);
    };
    ExpectSame("a of {a, norm}", zoo);
  });
}

void SetFlags(Module& model, bool last) {
  std::optional<FSDPModule> root = find_fsdp_module(model);
  if (!root.has_value()) return;
  root->set_requires_gradient_sync(last);
  root->set_reshard_after_backward(last);
  root->set_is_last_backward(last);
}

TEST(ModuleZoo, InterleavedMicrobatches) {
  RunRanks(3, [] {
    StartRank();
    for (const bool unshard_first : {false, true}) {
      Zoo<ReadersImpl> zoo = Readers([=](ReadersImpl& m) -> Tensors {
        if (unshard_first) {
          for (FSDPModule module : fsdp_modules(m)) module.unshard(true);
        }
        SetFlags(m, false);
        // Like the middle stage of a pipeline: one forward, one backward.
        const Tensor y0 = Chain(m, Input({3, 6}));
        const Tensor y1 = Chain(m, Input({3, 6}));
        Trained(y0);
        const Tensor y2 = Chain(m, Input({3, 6}));
        Trained(y1);
        SetFlags(m, true);
        Trained(y2);
        return {y0, y1, y2};
      });
      zoo.options.reshard_after_forward = false;
      ExpectSame("three microbatches", zoo);
    }
  });
}

// ---- Ranks that do not do the same -----------------------------------------

// Layers of which each rank, and each microbatch, uses some.
struct ExpertsImpl : Module {
  ExpertsImpl() {
    for (int i = 0; i < 3; ++i) experts->push_back(torch::nn::Linear(6, 6));
  }
  Tensor forward(const Tensor& x, const std::vector<size_t>& chosen) {
    const Tensor h = stem(x);
    Tensor out = h;
    for (const size_t i : chosen) {
      out = out + experts[i]->as<torch::nn::Linear>()->forward(h).tanh();
    }
    return head(out);
  }
  torch::nn::Linear stem = register_module("stem", torch::nn::Linear(6, 6));
  torch::nn::ModuleList experts =
      register_module("experts", torch::nn::ModuleList());
  torch::nn::Linear head = register_module("head", torch::nn::Linear(6, 2));
};

// A model and the same unsharded, whose gradients the ranks average; one that a
// rank does not have counts as zero.
struct ExpertsPair {
  ExpertsPair() {
    torch::manual_seed(42);
    reference = std::make_shared<ExpertsImpl>();
    torch::manual_seed(42);
    model = std::make_shared<ExpertsImpl>();
  }
  void Train(const std::vector<size_t>& chosen) {
    const Tensor x = Input({3, 6});
    ExpectClose(Trained(model->forward(x, chosen)).detach(),
                Trained(reference->forward(x, chosen)).detach(), "output");
  }
  void ExpectSameGradientsOrZeros() {
    const auto want = reference->named_parameters();
    for (const auto& [name, parameter] : fsdp::named_parameters(*model)) {
      Tensor& local = want[name].mutable_grad();
      if (!local.defined()) local = torch::zeros_like(want[name]);
      const auto grad = parameter.grad();
      ASSERT_TRUE(grad.has_value()) << name;
      ExpectClose(grad->full_tensor(), AverageOverRanks(local), name);
    }
  }
  void ClearGradients() {
    for (const auto& module : {model, reference}) module->zero_grad();
  }
  std::shared_ptr<ExpertsImpl> model, reference;
};

TEST(ModuleZoo, ExpertsWithoutTokens) {
  RunRanks(4, [] {
    StartRank();
    const auto rank = static_cast<size_t>(get_rank());
    for (const bool hybrid : {false, true}) {
      FullyShardOptions options;
      if (hybrid) {
        options.mesh = init_device_mesh("cpu", {2, 2}, {"replicate", "shard"});
      }
      ExpertsPair pair;
      fully_shard(pair.model->head, options);
      FSDPModule root = fully_shard(pair.model, options);
      root.set_zero_missing_gradients(true);
      torch::manual_seed(get_rank());
      for (int step = 0; step < 2; ++step) {
        pair.ClearGradients();
        // The last rank uses no expert, and one expert is used by no rank.
        pair.Train(rank == 3 ? std::vector<size_t>{}
                             : std::vector<size_t>{rank / 2});
        pair.ExpectSameGradientsOrZeros();
      }
      // Each microbatch uses another one.
      pair.ClearGradients();
      for (size_t i = 0; i < 3; ++i) {
        root.set_requires_gradient_sync(i == 2);
        pair.Train({(rank + i) % 2});
      }
      pair.ExpectSameGradientsOrZeros();
      EXPECT_EQ(step_report(*pair.model).unsharded_bytes, 0u);
    }
  });
}

// Every rank calls every expert, with as many tokens as it has.
TEST(ModuleZoo, ExpertsOfNoTokens) {
  RunRanks(2, [] {
    StartRank();
    Zoo<ExpertsImpl> zoo{
        .make = [] { return std::make_shared<ExpertsImpl>(); },
        .run = [](ExpertsImpl& m) -> Tensors {
          const Tensor h = m.stem(Input({4, 6}));
          Tensors out;
          for (int64_t i = 0; i < 3; ++i) {
            const int64_t num_tokens = i == get_rank() ? 4 : 0;
            out.push_back(m.experts[i]->as<torch::nn::Linear>()->forward(
                h.narrow(0, 0, num_tokens)));
          }
          return {Trained(torch::cat(out))};
        },
        .shard =
            [](const std::shared_ptr<Module>& model,
               const FullyShardOptions& options) {
              for (const auto& expert : *model->as<ExpertsImpl>()->experts) {
                fully_shard(expert, options);
              }
              fully_shard(model, options);
            }};
    ExpectSame("experts of no tokens", zoo);
  });
}

TEST(ModuleZoo, MicrobatchesThatUseDifferentParametersOfAGroup) {
  RunRanks(4, [] {
    StartRank();
    const FullyShardOptions options{
        .mesh = init_device_mesh("cpu", {2, 2}, {"replicate", "shard"})};
    // In the last case a group of the first microbatch is not one of the last.
    for (const bool own_groups : {false, true}) {
      ExpertsPair pair;
      if (own_groups) {
        for (const auto& expert : *pair.model->experts) {
          fully_shard(expert, options);
        }
      }
      FSDPModule root = fully_shard(pair.model, options);
      torch::manual_seed(get_rank());
      for (int step = 0; step < 2; ++step) {
        pair.ClearGradients();
        for (size_t i = 0; i < 3; ++i) {
          root.set_requires_all_reduce(i == 2);
          pair.Train({i});
        }
        pair.ExpectSameGradientsOrZeros();
      }
    }
  });
}

void ExpectASkippedBatchIsNamed() {
  StartRank();
  ExpertsPair pair;
  fully_shard(pair.model->stem);
  fully_shard(pair.model);
  const std::string error = ErrorOf([&] {
    for (int batch = 0; batch < 3; ++batch) {
      // Rank 1 has no data in the second batch and continues.
      if (batch == 1 && get_rank() == 1) continue;
      Trained(pair.model->forward(Input({3, 6}), {0, 1, 2}));
      if (batch != 1) clip_grad_norm_(parameters(*pair.model), 1.0);
    }
  });
  EXPECT_THAT(error, ::testing::AllOf(HasSubstr("have diverged"),
                                      HasSubstr("rank 0 is at the "),
                                      HasSubstr("rank 1 is at the ")));
}

TEST(ModuleZoo, ARankThatSkipsABatchIsNamed) {
  RunRanks(2, ExpectASkippedBatchIsNamed);
  RunRanks(2, ExpectASkippedBatchIsNamed,
           {.environment = {{"TESSERA_FSDP_DEBUG", "1"}}});
}

TEST(ModuleZoo, EvaluationThenTraining) {
  RunRanks(3, [] {
    StartRank();
    ExpectSame("evaluation, training, evaluation",
               Readers([](ReadersImpl& m) -> Tensors {
                 const Tensor x = Input({3, 6});
                 const auto evaluate = [&] {
                   const torch::NoGradGuard no_grad;
                   return Chain(m, x);
                 };
                 const Tensor before = evaluate();
                 const Tensor again = evaluate();
                 const Tensor y = Trained(Chain(m, x));
                 return {before, again, y};
               }));
    ExpectSame("weights changed in between",
               Readers([](ReadersImpl& m) -> Tensors {
                 const Tensor x = Input({3, 6});
                 Tensor before;
                 {
                   const torch::NoGradGuard no_grad;
                   before = Chain(m, x);
                   for (Tensor& p : m.parameters()) p.mul_(1.5);
                 }
                 return {before, Trained(Chain(m, x))};
               }));
  });
}

// ---- Checkpoints -----------------------------------------------------------

TEST(ModuleZoo, CheckpointsOfFrozenAndUnusedParameters) {
  RunRanks(3, [] {
    StartRank();
    for (const bool freeze : {false, true}) {
      Zoo<ReadersImpl> zoo = Readers([](ReadersImpl& m) -> Tensors {
        const auto block = [&m](const Tensor& t) {
          return t.matmul(m.a->weight).tanh();  // the norm is not used
        };
        const Tensor h = checkpoint(block, Input({3, 6}).matmul(m.b->weight));
        return {Trained(checkpoint(block, h))};
      });
      zoo.make = [freeze] {
        auto model = std::make_shared<ReadersImpl>();
        model->a->weight.set_requires_grad(!freeze);
        return model;
      };
      zoo.shard = [](const std::shared_ptr<Module>& model,
                     const FullyShardOptions& options) {
        const auto& readers = *model->as<ReadersImpl>();
        fully_shard({readers.a, readers.norm.ptr()}, options);
        fully_shard(model, options);
      };
      ExpectSame(freeze ? "frozen" : "unused", zoo);
    }
  });
}

TEST(ModuleZoo, ACheckpointDoesNotEndTheBackwardAroundIt) {
  RunRanks(2, [] {
    StartRank();
    Zoo<ReadersImpl> zoo = Readers([](ReadersImpl& m) -> Tensors {
      const Tensor x = Input({3, 6});
      // The nested backward is the first to need a parameter, that of `a`.
      const Tensor captured = x.matmul(m.a->weight);
      const Tensor y =
          checkpoint([captured](const Tensor& t) { return t * captured; },
                     m.norm(x.matmul(m.b->weight)));
      const bool sharded = find_fsdp_module(m).has_value();
      if (sharded) reset_step_report(m);
      Trained(y);
      // One group: one reduction, whichever backward its gradients came from.
      EXPECT_EQ(sharded ? step_report(m).num_reduce_scatters : 1, 1);
      return {y};
    });
    zoo.shard = [](const std::shared_ptr<Module>& model,
                   const FullyShardOptions& options) {
      fully_shard(model, options);
    };
    ExpectSame("captured", zoo);
  });
}

TEST(ModuleZoo, WritesAndSparseGradientsAreRefused) {
  RunRanks(2, [] {
    StartRank();
    torch::nn::Linear linear(4, 4);
    fully_shard(linear);
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 4).sparse(true));
    fully_shard(table);
    const Tensor rows = table(torch::tensor({1, 2}));
    EXPECT_THAT(ErrorOf([&] { rows.sum().backward(); }),
                HasSubstr("gradient of 'weight' is Sparse"));
    const Tensor x = Input({3, 4});
    const torch::NoGradGuard no_grad;
    linear(x);
    EXPECT_THAT(ErrorOf([&] { linear->weight.mul_(2); }),
                HasSubstr("writes into the gathered parameter 'weight'"));
    EXPECT_THAT(ErrorOf([&] {
                  at::_foreach_mul_({linear->weight, linear->bias}, 2);
                }),
                HasSubstr("writes into the gathered parameter 'weight'"));
  });
}

}  // namespace
}  // namespace fsdp::testing
