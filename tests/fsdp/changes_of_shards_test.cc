// SPDX-License-Identifier: Apache-2.0
// Optimizers, torch::load and users change the shards between two forwards: the
// next forward computes with the new values, or names a value that is not
// allowed. Compared with the same module without fully_shard, in float64.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/lazy_key.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/module/init.h"
#include "fsdp/module/materialize.h"
#include "fsdp/optim/fused_adamw.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/reader_pair.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/optim/adam.h"
#include "torch/optim/adamw.h"
#include "torch/optim/sgd.h"
#include "torch/serialize.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::Tensor;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using torch::nn::Module;

// Applied to the shards and to the reference alike.
using Change = std::function<void(Module&)>;

std::vector<std::pair<std::string, Change>> Changes() {
  const auto step = [](torch::optim::Optimizer& optimizer, Module& module) {
    for (Tensor& p : module.parameters())
      p.mutable_grad() = torch::ones_like(p);
    optimizer.step();
    optimizer.zero_grad();
  };
  return {
      {"in place",
       [](Module& m) {
         const torch::NoGradGuard no_grad;
         for (Tensor& p : m.parameters()) p.mul_(1.5);
       }},
      {"in place, through data()",
       [](Module& m) {
         for (Tensor& p : m.parameters()) p.data().mul_(1.5);
       }},
      {"SGD",
       [=](Module& m) {
         const torch::NoGradGuard no_grad;
         torch::optim::SGD optimizer(m.parameters(), 0.1);
         step(optimizer, m);
       }},
      {"Adam",
       [=](Module& m) {
         const torch::NoGradGuard no_grad;
         torch::optim::Adam optimizer(m.parameters(), 0.1);
         step(optimizer, m);
       }},
      {"FusedAdamW",
       [=](Module& m) {
         const torch::NoGradGuard no_grad;
         FusedAdamW optimizer(m.parameters(), FusedAdamWOptions(0.1));
         step(optimizer, m);
       }},
      {"set_data",
       [](Module& m) {
         const torch::NoGradGuard no_grad;
         for (Tensor& p : m.parameters()) p.set_data(p.detach() * 2);
       }},
      {"to() and back",
       [](Module& m) {
         m.to(torch::kFloat);
         m.to(torch::kDouble);
         const torch::NoGradGuard no_grad;
         for (Tensor& p : m.parameters()) p.add_(1);
       }},
  };
}

TEST(ChangesOfShards, AreSeenByTheNextForward) {
  RunRanks(3, [] {
    StartRankInDouble();
    for (const bool reshard : {true, false}) {
      for (const auto& [name, change] : Changes()) {
        SCOPED_TRACE(name);
        Both both = MakeBoth({.reshard_after_forward = reshard});
        const auto evaluate = [](Pair& model) {
          const torch::NoGradGuard no_grad;
          return model->forward(Input());
        };
        for (int round = 0; round < 2; ++round) {
          EXPECT_TRUE(Close(evaluate(both.model), evaluate(both.reference)));
          change(*both.model);
          change(*both.reference);
        }
        const Tensor got = both.model->forward(Input());
        const Tensor want = both.reference->forward(Input());
        // The shards were in float32 for a while, which rounds.
        EXPECT_TRUE(torch::allclose(got, want, 1e-6, 1e-6));
        got.sum().backward();
        want.sum().backward();
        for (auto& item : both.reference->named_parameters()) {
          EXPECT_TRUE(item.value().grad().defined()) << item.key();
        }
      }
    }
  });
}

using OptimizerPtr = std::unique_ptr<torch::optim::Optimizer>;

std::vector<std::pair<std::string, OptimizerPtr (*)(std::vector<Tensor>)>>
Optimizers() {
  return {{"SGD",
           [](std::vector<Tensor> p) -> OptimizerPtr {
             return std::make_unique<torch::optim::SGD>(p, 0.1);
           }},
          {"AdamW",
           [](std::vector<Tensor> p) -> OptimizerPtr {
             return std::make_unique<torch::optim::AdamW>(p, 0.1);
           }},
          {"FusedAdamW", [](std::vector<Tensor> p) -> OptimizerPtr {
             return std::make_unique<FusedAdamW>(p, FusedAdamWOptions(0.1));
           }}};
}

// FusedAdamW steps by raw pointers.
TEST(ChangesOfShards, AreSeenWhereParametersStayedGatheredInTheStep) {
  using Root = std::optional<FSDPModule>;
  const std::vector<std::pair<std::string, std::function<void(Pair&, Root)>>>
      ways{{"freed", [](Pair&, Root) {}},
           {"evaluated",
            [](Pair& model, Root) {
              const torch::NoGradGuard no_grad;
              model->forward(Input());
            }},
           {"kept after backward", [](Pair&, Root) {}},
           {"gathered by hand", [](Pair&, Root root) {
              if (root.has_value()) root->unshard();
            }}};
  RunRanks(2, [&] {
    StartRankInDouble();
    for (const auto& way : ways) {
      for (const auto& [name, make] : Optimizers()) {
        SCOPED_TRACE(way.first + ", " + name);
        Both both = MakeBoth();
        FSDPModule root = get_fsdp_module(*both.model);
        if (way.first == "kept after backward") {
          root.set_reshard_after_backward(false);
        }
        const auto train = [&way](Pair& model,
                                  torch::optim::Optimizer& optimizer,
                                  const Root& sharded) {
          optimizer.zero_grad();
          const Tensor loss = model->forward(Input()).square().mean();
          loss.backward();
          way.second(model, sharded);
          optimizer.step();
          return loss.detach();
        };
        const OptimizerPtr optimizer = make(both.model->parameters());
        // A fused step on whole parameters is tested elsewhere.
        const OptimizerPtr reference =
            Optimizers()[name == "SGD" ? 0 : 1].second(
                both.reference->parameters());
        for (int step = 0; step < 3; ++step) {
          EXPECT_TRUE(Close(train(both.model, *optimizer, root),
                            train(both.reference, *reference, std::nullopt)));
        }
        ExpectSameParameters(*both.model, *both.reference);
      }
    }
  });
}

TEST(ChangesOfShards, OfBroadcastsAndInitialisationsAreSeen) {
  RunRanks(4, [] {
    StartRankInDouble();
    const DeviceMesh mesh =
        init_device_mesh("cpu", {2, 2}, {"replicate", "shard"});
    const std::vector<std::pair<std::string, Change>> changes{
        {"broadcast",
         [&](Module& model) {
           broadcast_module(model, mesh.get_group("replicate"));
         }},
        {"initialisation",
         [](Module& model) {
           init::init_parameters(
               model,
               [](const std::string&, const init::Target& target, uint64_t) {
                 init::constant_(target, 3);
               },
               /*seed=*/1);
         }},
        {"to_local()", [](Module& model) {
           const torch::NoGradGuard no_grad;
           for (DTensor& p : parameters(model)) p.to_local().fill_(3);
         }}};
    const torch::NoGradGuard no_grad;
    const Tensor x = torch::ones({1, 4});
    for (const auto& [name, change] : changes) {
      SCOPED_TRACE(name);
      Linear model(4, 2);
      model->weight.fill_(get_rank() / 2 + 1);
      model->bias.fill_(get_rank() / 2 + 1);
      fully_shard(model, {.mesh = mesh, .reshard_after_forward = false});
      model(x);  // leaves the parameters gathered
      change(*model);
      const double value = name == "broadcast" ? 1 : 3;
      EXPECT_TRUE(Close(model(x), torch::full({1, 2}, 5 * value)));
    }
  });
}

// Shards in one group lie in one storage.
TEST(ChangesOfShards, MayBeThatTwoOfOneGroupChangePlaces) {
  RunRanks(2, [] {
    StartRankInDouble();
    const torch::NoGradGuard no_grad;
    for (const bool reshard : {true, false}) {
      torch::manual_seed(7);
      Pair reference;
      torch::manual_seed(7);
      Pair model;
      fully_shard(model, {.reshard_after_forward = reshard});
      for (int round = 0; round < 3; ++round) {
        EXPECT_TRUE(Close(model->forward(Input()), reference->forward(Input())))
            << "reshard " << reshard << ", round " << round;
        for (const Pair& pair : {model, reference}) {
          Tensor first = pair->named_parameters()["a.weight"];
          Tensor second = pair->named_parameters()["b.weight"];
          const Tensor kept = first.detach();
          first.set_data(second.detach());
          second.set_data(kept);
        }
      }
    }
  });
}

// Whatever the geometry: a shard that seems to be replaced would be copied.
TEST(ChangesOfShards, AreNotSeenWhereThereAreNone) {
  RunRanks(4, [] {
    StartRankInDouble();
    const auto storages = [](const Module& module) {
      std::vector<const void*> all;
      for (const Tensor& p : module.parameters()) {
        all.push_back(
            p.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
      }
      return all;
    };
    for (const int64_t dim : {0, 1}) {
      // The last rank has none of 5 rows, and only the first has one of 1 row.
      torch::nn::Sequential model(Linear(8, 5), Linear(5, 1),
                                  Linear(LinearOptions(1, 8).bias(false)));
      fully_shard(model, {.shard_placement_fn = [dim](const Tensor& t) {
                    return std::optional(
                        Shard(t.dim() == 2 && t.size(1) == 8 ? dim : 0));
                  }});
      const std::vector<const void*> before = storages(*model);
      for (int step = 0; step < 2; ++step) {
        model->forward(torch::ones({2, 8})).sum().backward();
      }
      EXPECT_EQ(storages(*model), before) << "dimension " << dim;
    }
  });
}

TEST(ChangesOfShards, OfALoadAreSeen) {
  RunRanks(2, [] {
    StartRankInDouble();
    Both both = MakeBoth({.reshard_after_forward = false});
    const std::string file =
        SharedDir() + "/rank" + std::to_string(get_rank()) + ".pt";
    torch::save(both.model, file);
    const torch::NoGradGuard no_grad;
    const Tensor before = both.model->forward(Input());
    for (Tensor& p : both.model->parameters()) p.zero_();
    EXPECT_EQ(both.model->forward(Input()).abs().sum().item<double>(), 0);
    torch::load(both.model, file);
    EXPECT_TRUE(Close(both.model->forward(Input()), before));
    ExpectSameParameters(*both.model, *both.reference);
  });
}

TEST(ChangesOfShards, OfOneRanksFileAreRefused) {
  RunRanks(2, [] {
    StartRankInDouble();
    Both both = MakeBoth();
    const std::string file = SharedDir() + "/model.pt";
    if (get_rank() == 0) torch::save(both.model, file);
    WaitForAllRanks();
    torch::load(both.model, file);
    EXPECT_THAT(ThrownMessage([&] { both.model->forward(Input()); }),
                AllOf(HasSubstr("every rank has loaded the same shard"),
                      HasSubstr("'a.weight'"), HasSubstr("fsdp::load")));
    WaitForAllRanks();
    // A file with whole tensors is refused in the call itself.
    if (get_rank() == 0) torch::save(both.reference, file);
    WaitForAllRanks();
    EXPECT_THAT(ThrownMessage([&] { torch::load(both.model, file); }),
                AllOf(HasSubstr("'a.weight'"), HasSubstr("of shape [6, 6]"),
                      HasSubstr("has the shape [3, 6]")));
  });
}

// The ways in which torch::load puts a tensor into a shard's place: set_, and
// set_data where it lies on another device.
TEST(ChangesOfShards, WholeTensorsAreRefusedAtTheCall) {
  RunRanks(2, [] {
    StartRankInDouble();
    Linear model(6, 6), on_meta{nullptr};
    {
      const MetaDeviceGuard guard;
      on_meta = Linear(6, 6);
    }
    fully_shard(model);
    fully_shard(on_meta);
    const Tensor weight = model->parameters()[0].detach().clone();
    const torch::NoGradGuard no_grad;
    for (const Tensor& source : {torch::ones({6, 6}), torch::tensor(1.0)}) {
      for (const bool by_set : {true, false}) {
        EXPECT_THAT(ThrownMessage([&] {
                      Tensor shard = model->parameters()[0];
                      by_set ? void(shard.set_(source))
                             : shard.set_data(source);
                    }),
                    AllOf(HasSubstr("the shard of 'weight' was to be replaced"),
                          HasSubstr("has the shape [3, 6]"),
                          HasSubstr("fsdp::distribute_tensor"),
                          HasSubstr("fsdp::set_model_state_dict")));
      }
      EXPECT_THAT(
          ThrownMessage([&] { on_meta->parameters()[0].set_data(source); }),
          HasSubstr("the shard of 'weight' was to be replaced"));
    }
    EXPECT_TRUE(model->parameters()[0].equal(weight));
    model->parameters()[0].set_data(weight * 2);
    EXPECT_TRUE(model(torch::ones({1, 6})).defined());
  });
}

// Does what the errors advise, as PyTorch's load_state_dict(assign=True) does.
TEST(ChangesOfShards, APartOfAWholeTensorMayTakeAShardsPlace) {
  RunRanks(2, [] {
    StartRankInDouble();
    Linear model(6, 6);
    fully_shard(model);
    torch::manual_seed(5);
    const Tensor whole = torch::randn({6, 6}), x = torch::randn({2, 6});
    const Tensor bias = dtensor_of(model->parameters()[1])->full_tensor();
    const DTensor weight = *dtensor_of(model->parameters()[0]);
    model->parameters()[0].set_data(
        distribute_tensor(whole, weight.device_mesh(), weight.placements())
            .to_local());
    EXPECT_TRUE(Close(model(x), torch::linear(x, whole, bias)));
    model(x).sum().backward();
    EXPECT_EQ(model->parameters()[0].grad().sizes(), (at::IntArrayRef{3, 6}));
  });
}

TEST(ChangesOfShards, TheShardOfAnotherParameterIsRefusedByTheNextForward) {
  RunRanks(2, [] {
    StartRankInDouble();
    Linear model(6, 6);
    fully_shard(model);
    model->parameters()[0].set_data(model->parameters()[1]);
    EXPECT_THAT(
        ThrownMessage([&] {
          model(torch::ones({1, 6}));
        }),
        AllOf(HasSubstr("the shard of 'weight' was replaced by a tensor "
                        "of shape [3], but this rank's part has the "
                        "shape [3, 6]"),
              HasSubstr("fsdp::distribute_tensor"),
              HasSubstr("fsdp::set_model_state_dict")));
  });
}

}  // namespace
}  // namespace fsdp::testing
