// SPDX-License-Identifier: Apache-2.0
// The ways to run a model under fully_shard, whatever the modules are: several
// forwards and backwards, groups that a step or a rank does not use, evaluation
// in between, checkpoints.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module/module_zoo.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/csrc/autograd/autograd.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;
using torch::nn::Module;

Tensor Chain(ReadersImpl& m, const Tensor& x) {
  return m.norm(x.matmul(m.a->weight).tanh()).matmul(m.b->weight);
}

TEST(ModuleZoo, SeveralForwardsAndBackwards) {
  RunRanks(3, [] {
    StartRankInDouble();
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
    StartRankInDouble();
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

TEST(ModuleZoo, ActivationsThatAreNotTensors) {
  RunRanks(2, [] {
    StartRankInDouble();
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
    StartRankInDouble();
    ExpectSame<NoInputsImpl>(
        "no inputs", {.make = [] { return std::make_shared<NoInputsImpl>(); },
                      .run = [](NoInputsImpl& m) -> Tensors {
                        return {Trained(fsdp::forward(m))};
                      }});
    auto model = std::make_shared<NoInputsImpl>();
    fully_shard(model);
    EXPECT_THAT(ThrownMessage([&] { model->forward(); }),
                HasSubstr("ForwardScope"));
    const ForwardScope scope;
    EXPECT_EQ(model->forward().size(0), 4);
  });
}

TEST(ModuleZoo, ModuleListThatIsPartlyRun) {
  RunRanks(3, [] {
    StartRankInDouble();
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
    StartRankInDouble();
    for (const bool unshard_first : {false, true}) {
      Zoo<ReadersImpl> zoo = Readers([=](ReadersImpl& m) -> Tensors {
        if (unshard_first) {
          for (FSDPModule module : fsdp_modules(m)) module.unshard(true);
        }
        SetFlags(m, false);
        // Like a pipeline's middle stage: one forward, one backward.
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

// ---- Ranks that do different things ----------------------------------------

// Layers; each rank, and each microbatch, uses only some.
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

// A model and the same model unsharded, for which the ranks average gradients;
// a gradient that a rank does not have counts as zero.
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

TEST(ModuleZoo, ExpertsThatARankDoesNotCall) {
  RunRanks(4, [] {
    StartRankInDouble();
    const auto rank = static_cast<size_t>(get_rank());
    for (const bool hybrid : {false, true}) {
      FullyShardOptions options;
      if (hybrid) {
        options.mesh = init_device_mesh("cpu", {2, 2}, {"replicate", "shard"});
      }
      ExpertsPair pair;
      fully_shard(pair.model->head, options);
      FSDPModule root = fully_shard(pair.model, options);
      root.set_reduce_scatter_unused_params(true);
      torch::manual_seed(get_rank());
      for (int step = 0; step < 2; ++step) {
        pair.ClearGradients();
        // The last rank uses no expert, and one expert is used by no rank.
        pair.Train(rank == 3 ? std::vector<size_t>{}
                             : std::vector<size_t>{rank / 2});
        pair.ExpectSameGradientsOrZeros();
      }
      // Each microbatch uses a different one.
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
TEST(ModuleZoo, ExpertsThatGetNoTokens) {
  RunRanks(2, [] {
    StartRankInDouble();
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
    StartRankInDouble();
    const FullyShardOptions options{
        .mesh = init_device_mesh("cpu", {2, 2}, {"replicate", "shard"})};
    // In the last case, a group in the first microbatch is not in the last.
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
  StartRankInDouble();
  ExpertsPair pair;
  fully_shard(pair.model->stem);
  fully_shard(pair.model);
  const std::string error = ThrownMessage([&] {
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
    StartRankInDouble();
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
    StartRankInDouble();
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
    StartRankInDouble();
    Zoo<ReadersImpl> zoo = Readers([](ReadersImpl& m) -> Tensors {
      const Tensor x = Input({3, 6});
      // The nested backward is the first to need a parameter, the one in `a`.
      const Tensor captured = x.matmul(m.a->weight);
      const Tensor y =
          checkpoint([captured](const Tensor& t) { return t * captured; },
                     m.norm(x.matmul(m.b->weight)));
      const bool sharded = find_fsdp_module(m).has_value();
      if (sharded) reset_step_report(m);
      Trained(y);
      // One group: one reduction, whichever backward the gradients came from.
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
    StartRankInDouble();
    torch::nn::Linear linear(4, 4);
    fully_shard(linear);
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 4).sparse(true));
    fully_shard(table);
    const Tensor rows = table(torch::tensor({1, 2}));
    EXPECT_THAT(ThrownMessage([&] { rows.sum().backward(); }),
                HasSubstr("gradient of 'weight' is Sparse"));
    const Tensor x = Input({3, 4});
    const torch::NoGradGuard no_grad;
    linear(x);
    EXPECT_THAT(ThrownMessage([&] { linear->weight.mul_(2); }),
                HasSubstr("writes into the gathered parameter 'weight'"));
    EXPECT_THAT(ThrownMessage([&] {
                  at::_foreach_mul_({linear->weight, linear->bias}, 2);
                }),
                HasSubstr("writes into the gathered parameter 'weight'"));
  });
}

}  // namespace
}  // namespace fsdp::testing
