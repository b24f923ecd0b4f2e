// SPDX-License-Identifier: Apache-2.0
// Habits of C++ programs in addition to one forward and one backward:
// adversaries, adapters, averages of weights, several optimizers, closures,
// hooks, errors in the middle of a step. Each is compared with the same model
// without fully_shard, on the same input on every rank, in float64.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/fully_shard.h"
#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/optim/lbfgs.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/optim/adam.h"
#include "torch/optim/sgd.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;
using torch::nn::LayerNorm;
using torch::nn::LayerNormOptions;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using torch::nn::Module;

Tensor Input(double shift = 0) {
  return torch::linspace(-1 + shift, 1, 18).view({3, 6});
}

// Runs `train` on a model that `make` makes and `shard` may shard; returns the
// values to compare.
template <typename Model>
void ExpectSame(const std::function<Model()>& make,
                const std::function<void(Model&)>& shard,
                const std::function<Tensor(Model&)>& train) {
  torch::manual_seed(4);
  Model reference = make();
  torch::manual_seed(4);
  Model model = make();
  shard(model);
  const Tensor want = train(reference);
  const Tensor got = train(model);
  EXPECT_TRUE(torch::allclose(got, want, 1e-8, 1e-10))
      << (got - want).abs().max().template item<double>();
  const auto whole = reference->named_parameters();
  for (const auto& [name, parameter] : fsdp::named_parameters(*model)) {
    EXPECT_TRUE(
        torch::allclose(parameter.full_tensor(), whole[name], 1e-8, 1e-10))
        << name;
  }
}

// Each child that has parameters and a forward, and the rest.
template <typename Model>
void ShardChildren(Model& model) {
  for (const auto& child : model->children()) {
    if (!is_container_without_forward(*child)) fully_shard(child);
  }
  fully_shard(model);
}

struct NetImpl : Module {
  explicit NetImpl(int64_t num_layers = 2) {
    for (int64_t i = 0; i < num_layers; ++i) {
      layers.push_back(
          register_module("layer" + std::to_string(i), Linear(6, 6)));
    }
    norm = register_module("norm", LayerNorm(LayerNormOptions({6})));
    last = register_module("last", Linear(6, 1));
  }
  // One norm for all layers.
  Tensor forward(Tensor x) {
    for (Linear& layer : layers) x = x + layer(norm(x)).tanh();
    return last(norm(x));
  }
  std::vector<Linear> layers;
  LayerNorm norm{nullptr};
  Linear last{nullptr};
};
TORCH_MODULE(Net);

TEST(TrainingHabits, ANormThatAllLayersShare) {
  RunRanks(3, [] {
    StartRankInDouble();
    ExpectSame<Net>([] { return Net(3); }, ShardChildren<Net>,
                    [](Net& net) {
                      torch::optim::Adam optimizer(net->parameters(), 1e-2);
                      Tensor loss;
                      for (int step = 0; step < 3; ++step) {
                        optimizer.zero_grad();
                        loss = net(Input()).square().mean();
                        loss.backward();
                        optimizer.step();
                      }
                      return loss.detach();
                    });
  });
}

struct GanImpl : Module {
  GanImpl()
      : generator(register_module("generator", Linear(6, 6))),
        discriminator(register_module("discriminator", Net())) {}
  Linear generator;
  Net discriminator;
};
TORCH_MODULE(Gan);

void Freeze(Module& module, bool frozen) {
  for (Tensor& p : module.parameters()) p.set_requires_grad(!frozen);
}

TEST(TrainingHabits, AGanThatFreezesItsDiscriminator) {
  RunRanks(3, [] {
    StartRankInDouble();
    const auto shard = [](Gan& gan) {
      fully_shard(gan->generator);
      fully_shard(gan->discriminator);
      fully_shard(gan);
    };
    ExpectSame<Gan>(
        [] { return Gan(); }, shard,
        [](Gan& gan) {
          torch::optim::Adam steps_g(gan->generator->parameters(), 1e-2);
          torch::optim::SGD steps_d(gan->discriminator->parameters(), 1e-2);
          Tensor sum = torch::zeros({});
          for (int step = 0; step < 3; ++step) {
            Freeze(*gan->discriminator, false);
            steps_d.zero_grad();
            const Tensor fake = gan->generator(Input(step)).detach();
            const Tensor loss_d = gan->discriminator(fake).sigmoid().mean() -
                                  gan->discriminator(Input()).sigmoid().mean();
            loss_d.backward();
            steps_d.step();
            Freeze(*gan->discriminator, true);
            steps_g.zero_grad();
            const Tensor loss_g =
                -gan->discriminator(gan->generator(Input(step))).mean();
            loss_g.backward();
            steps_g.step();
            sum = sum + loss_d.detach() + loss_g.detach();
          }
          return sum;
        });
  });
}

struct ExpertsImpl : Module {
  ExpertsImpl() {
    for (int i = 0; i < 3; ++i) {
      experts.push_back(
          register_module("expert" + std::to_string(i), Linear(6, 6)));
    }
  }
  // The experts share the rows of x; the last one gets none, and the second
  // gets some only if `second`.
  Tensor forward(const Tensor& x, bool second) {
    const Tensor rows = x.slice(0, 0, second ? 2 : 3);
    Tensor y = experts[0](rows).tanh().sum(0);
    if (second) y = y + experts[1](x.slice(0, 2)).tanh().sum(0);
    return y + experts[2](x.slice(0, 3)).sum(0);
  }
  std::vector<Linear> experts;
};
TORCH_MODULE(Experts);

TEST(TrainingHabits, ExpertsWithoutTokens) {
  RunRanks(3, [] {
    StartRankInDouble();
    ExpectSame<Experts>([] { return Experts(); }, ShardChildren<Experts>,
                        [](Experts& model) {
                          torch::optim::SGD optimizer(model->parameters(), 0.1);
                          Tensor y;
                          for (int step = 0; step < 4; ++step) {
                            optimizer.zero_grad();
                            y = model->forward(Input(), step % 2 == 0);
                            y.square().sum().backward();
                            optimizer.step();
                          }
                          return y.detach();
                        });
  });
}

struct LoraImpl : Module {
  LoraImpl() : base(register_module("base", Linear(6, 6))) {
    down = register_parameter("down", torch::randn({6, 2}));
    up = register_parameter("up", torch::zeros({2, 6}));
    for (Tensor& p : base->parameters()) p.set_requires_grad(false);
  }
  Tensor forward(const Tensor& x) {
    return base(x) + x.matmul(down).matmul(up);
  }
  Linear base;
  Tensor down, up;
};
TORCH_MODULE(Lora);

TEST(TrainingHabits, AdaptersOfAFrozenBase) {
  RunRanks(3, [] {
    StartRankInDouble();
    for (const bool own_group : {true, false}) {
      const auto shard = [own_group](Lora& lora) {
        if (own_group) fully_shard(lora->base);
        fully_shard(lora);
      };
      ExpectSame<Lora>([] { return Lora(); }, shard,
                       [](Lora& lora) {
                         std::vector<Tensor> trained;
                         for (const Tensor& p : lora->parameters()) {
                           if (p.requires_grad()) trained.push_back(p);
                         }
                         EXPECT_EQ(trained.size(), 2U);
                         torch::optim::Adam optimizer(trained, 1e-2);
                         Tensor loss;
                         for (int step = 0; step < 3; ++step) {
                           optimizer.zero_grad();
                           loss = (lora(Input()) - Input(0.5)).square().mean();
                           loss.backward();
                           optimizer.step();
                         }
                         return loss.detach();
                       });
    }
  });
}

// An average of weights, evaluated in place of the weights.
TEST(TrainingHabits, AnAverageOfWeights) {
  RunRanks(3, [] {
    StartRankInDouble();
    ExpectSame<Net>([] { return Net(); }, ShardChildren<Net>,
                    [](Net& net) {
                      torch::optim::SGD optimizer(net->parameters(), 0.1);
                      std::vector<Tensor> average;
                      for (const Tensor& p : net->parameters()) {
                        average.push_back(p.detach().clone());
                      }
                      Tensor sum = torch::zeros({});
                      for (int step = 0; step < 3; ++step) {
                        optimizer.zero_grad();
                        net(Input()).square().mean().backward();
                        optimizer.step();
                        const torch::NoGradGuard no_grad;
                        std::vector<Tensor> parameters = net->parameters();
                        for (size_t i = 0; i < average.size(); ++i) {
                          average[i].mul_(0.9).add_(parameters[i], 0.1);
                          const Tensor kept = parameters[i].clone();
                          parameters[i].copy_(average[i]);
                          average[i].copy_(kept);
                        }
                        sum = sum + net(Input()).mean();
                        for (size_t i = 0; i < average.size(); ++i) {
                          const Tensor kept = parameters[i].clone();
                          parameters[i].copy_(average[i]);
                          average[i].copy_(kept);
                        }
                      }
                      return sum;
                    });
  });
}

TEST(TrainingHabits, LbfgsAndClosures) {
  RunRanks(3, [] {
    StartRankInDouble();
    const torch::optim::LBFGSOptions options =
        torch::optim::LBFGSOptions(0.5)
            .max_iter(5)
            .history_size(4)
            .line_search_fn("strong_wolfe");
    const auto train = [options](Net& net) {
      const auto closure = [&net] {
        net->zero_grad();
        Tensor loss = (net(Input()) - 1).square().mean();
        loss.backward();
        return loss;
      };
      Tensor sum = torch::zeros({});
      if (find_fsdp_module(*net).has_value()) {
        LBFGS optimizer(parameters(*net), options);
        for (int i = 0; i < 2; ++i) sum = sum + optimizer.step(closure);
      } else {
        torch::optim::LBFGS optimizer(net->parameters(), options);
        for (int i = 0; i < 2; ++i) sum = sum + optimizer.step(closure);
      }
      torch::optim::SGD after(net->parameters(), 0.1);
      return sum.detach() + after.step(closure).detach();
    };
    ExpectSame<Net>([] { return Net(); }, ShardChildren<Net>, train);
  });
}

// L-BFGS would compute dot products over only this rank's parts.
TEST(TrainingHabits, LbfgsOfLibTorchIsRefusedOnShards) {
  RunRanks(2, [] {
    StartRankInDouble();
    torch::manual_seed(1);
    Net net, whole;
    ShardChildren(net);
    const auto step = [](Net& model) {
      torch::optim::LBFGS optimizer(model->parameters(),
                                    torch::optim::LBFGSOptions(1).max_iter(2));
      optimizer.step([&] {
        model->zero_grad();
        Tensor loss = (model(Input()) - 1).square().mean();
        loss.backward();
        return loss;
      });
    };
    step(whole);
    EXPECT_THAT(ThrownMessage([&] { step(net); }),
                AllOf(HasSubstr("Use fsdp::LBFGS"), HasSubstr("weight'")));
    // A forward may take a parameter's shape, and a program may take this
    // rank's.
    const torch::NoGradGuard no_grad;
    Tensor shard = net->parameters()[0];
    const DTensor parameter = parameters(*net)[0];
    const Tensor vector = torch::ones({shard.numel()});
    {
      const ShardScope scope;
      EXPECT_EQ(vector.view_as(shard).sizes(), shard.sizes());
    }
    EXPECT_EQ(torch::ones({parameter.numel()}).view_as(shard).sizes(),
              torch::IntArrayRef(parameter.shape()));
  });
}

TEST(TrainingHabits, HooksOfMembersSeeThisRanksWholeGradient) {
  RunRanks(3, [] {
    StartRankInDouble();
    ExpectSame<Net>(
        [] { return Net(); }, ShardChildren<Net>,
        [](Net& net) {
          int calls = 0;
          net->last->weight.register_hook([&calls](const Tensor& gradient) {
            EXPECT_EQ(gradient.sizes(), (std::vector<int64_t>{1, 6}));
            ++calls;
            return gradient * 2;
          });
          torch::optim::SGD optimizer(net->parameters(), 0.1);
          const Tensor loss = net(Input()).square().mean();
          loss.backward();
          optimizer.step();
          EXPECT_EQ(calls, 1);
          return loss.detach();
        });
  });
}

TEST(TrainingHabits, AForwardThatThrowsHalfWay) {
  RunRanks(3, [] {
    StartRankInDouble();
    ExpectSame<Net>([] { return Net(); }, ShardChildren<Net>,
                    [](Net& net) {
                      torch::optim::SGD optimizer(net->parameters(), 0.1);
                      Tensor loss;
                      for (int step = 0; step < 3; ++step) {
                        // The last layer gets an input that it cannot take.
                        EXPECT_THAT(ThrownMessage([&] {
                                      net->last(net->layers[0](Input()).t());
                                    }),
                                    HasSubstr("shape"));
                        optimizer.zero_grad();
                        loss = net(Input()).square().mean();
                        loss.backward();
                        optimizer.step();
                      }
                      return loss.detach();
                    });
  });
}

// ---- Memory and communication -----------------------------------------------

// A block that reads a root parameter between two block parameters.
struct ScaledBlockImpl : Module {
  ScaledBlockImpl()
      : up(register_module("up", Linear(6, 12))),
        down(register_module("down", Linear(12, 6))) {}
  Tensor forward(const Tensor& x, const Tensor& scale) {
    return x + down(up(x).tanh() * scale);
  }
  Linear up, down;
};
TORCH_MODULE(ScaledBlock);

struct ScaledNetImpl : Module {
  explicit ScaledNetImpl(int64_t num_blocks) {
    scale = register_parameter("scale", torch::ones({12}));
    for (int64_t i = 0; i < num_blocks; ++i) {
      blocks.push_back(
          register_module("block" + std::to_string(i), ScaledBlock()));
    }
  }
  Tensor forward(Tensor x, bool checkpoints = false) {
    for (ScaledBlock& block : blocks) {
      const auto run = [&](const Tensor& h) { return block(h, scale); };
      x = checkpoints ? checkpoint(run, x) : run(x);
    }
    return x;
  }
  Tensor scale;
  std::vector<ScaledBlock> blocks;
};
TORCH_MODULE(ScaledNet);

ScaledNet ShardScaledNet(int64_t num_blocks, const FullyShardOptions& options) {
  torch::manual_seed(2);
  ScaledNet net(num_blocks);
  for (ScaledBlock& block : net->blocks) fully_shard(block, options);
  fully_shard(net, options);
  return net;
}

CountingBackend& CountsOf(const ScaledNet& net) {
  return Count(get_fsdp_module(*net).state()->group()->config().shard_group);
}

TEST(CommunicationOfHabits, ARootsParameterInsideBlocksFreesNone) {
  RunRanks(2, [] {
    StartRankInDouble();
    ScaledNet net = ShardScaledNet(4, {.reshard_after_forward = true});
    CountingBackend& counts = CountsOf(net);
    for (int step = 0; step < 2; ++step) {
      const Tensor y = net(Input());
      EXPECT_EQ(counts.ToString(), "all_gather 5");
      counts.Reset();
      y.sum().backward();
      // The last block and the root are still gathered.
      EXPECT_EQ(counts.ToString(), "all_gather 3, reduce_scatter 5");
      counts.Reset();
    }
  });
}

TEST(CommunicationOfHabits, CheckpointedGroupsThatAreKeptStay) {
  RunRanks(2, [] {
    StartRankInDouble();
    ScaledNet net = ShardScaledNet(3, {.reshard_after_forward = false});
    CountingBackend& counts = CountsOf(net);
    for (int step = 0; step < 2; ++step) {
      const Tensor y = net->forward(Input(), /*checkpoints=*/true);
      EXPECT_EQ(counts.ToString(), "all_gather 4");
      counts.Reset();
      y.sum().backward();
      EXPECT_EQ(counts.ToString(), "reduce_scatter 4");
      counts.Reset();
    }
  });
}

TEST(CommunicationOfHabits, TwoForwardsBeforeOneBackwardHoldTwoGroups) {
  RunRanks(2, [] {
    StartRankInDouble();
    const auto peak = [](int64_t num_blocks) {
      ScaledNet net =
          ShardScaledNet(num_blocks, {.reshard_after_forward = true});
      const Tensor first = net(Input());
      const Tensor second = net(Input(0.5));
      (first.sum() * second.sum()).backward();
      EXPECT_EQ(step_report(*net).unsharded_bytes, 0U);
      return step_report(*net).unsharded_bytes_peak;
    };
    EXPECT_EQ(peak(8), peak(4));
  });
}

}  // namespace
}  // namespace fsdp::testing
