// SPDX-License-Identifier: Apache-2.0
// Tests replicate: whole copies in fully_shard's engine.

#include "fsdp/replicate.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/fully_shard.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/manual_steps.h"
#include "tests/fsdp/mlp_tower.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/sharded_tower.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/optim/sgd.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A tower, replicated layer by layer; `counts` has the all-reduces.
Sharded ReplicateTower(const ReplicateOptions& options = {}) {
  Tower tower = MakeTower();
  std::vector<FSDPModule> layers;
  for (const auto& layer : tower->layers) {
    layers.push_back(replicate(layer, options));
  }
  const FSDPModule root = replicate(tower, options);
  const ProcessGroup group = root.state()->group()->config().replicate_group;
  return {tower, root, layers, &Count(group), {}};
}

std::vector<int64_t> Ranks() {
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < get_world_size(); ++rank) ranks.push_back(rank);
  return ranks;
}

TEST(Replicate, AveragesGradientsOfWholeParameters) {
  for (const int num_ranks : {1, 2, 3, 4}) {
    RunRanks(num_ranks, [] {
      InitRank();
      Sharded s = ReplicateTower();
      const auto whole = MakeTower()->named_parameters();
      for (const auto& [name, parameter] : fsdp::named_parameters(*s.tower)) {
        EXPECT_THAT(parameter.placements(), ElementsAre(Replicate()));
        EXPECT_TRUE(parameter.to_local().equal(whole[name])) << name;
        EXPECT_EQ(parameter.device_mesh().mesh_dim_names(),
                  std::vector<std::string>{"replicate"});
      }
      const double share = 1.0 / static_cast<double>(get_world_size());
      for (int step = 1; step <= 2; ++step) {
        s.counts->Reset();
        Step(s);
        EXPECT_EQ(s.counts->ToString(), "all_reduce 4");
        ExpectGradients(s.tower, share * step, Ranks());
      }
    });
  }
}

TEST(Replicate, AccumulatesAndFinalizesByHand) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ReplicateTower();
    for (const bool reduces_late : {true, false}) {
      if (reduces_late) {
        s.root.set_requires_gradient_sync(false);
      } else {
        s.root.set_requires_all_reduce(false);
      }
      Step(s);
      EXPECT_EQ(s.counts->calls(), 0);
      s.root.set_requires_gradient_sync(true);
      Step(s);
      ExpectGradients(s.tower, 1, {0, 1});
      ClearGradients(*s.tower);
      s.counts->Reset();
    }
    s.root.set_manual_backward_finalization(true);
    s.root.set_requires_gradient_sync(false);
    Step(s);
    Step(s);
    s.root.set_requires_gradient_sync(true);
    s.root.finalize_backward(/*async=*/true).wait();
    EXPECT_EQ(s.counts->calls(), 4);
    ExpectGradients(s.tower, 1, {0, 1});
    s.root.reset_iter_state();
    ExpectNoGradients(*s.tower);
  });
}

// Copies in param_dtype stay from forward to backward.
TEST(Replicate, CastsOncePerStep) {
  RunRanks(2, [] {
    InitRank();
    Sharded s =
        ReplicateTower({.mp_policy = {.param_dtype = torch::kBFloat16}});
    s.Forward();
    EXPECT_EQ(s.tower->layers[0]->weight.scalar_type(), torch::kBFloat16);
    EXPECT_TRUE(s.layers[0].is_unsharded());
    s.Backward();
    EXPECT_FALSE(s.layers[0].is_unsharded());
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, 0U);
    for (const torch::Tensor& p : s.tower->parameters()) {
      EXPECT_EQ(p.grad().scalar_type(), torch::kFloat);
    }
    const auto want = SummedGradients({0, 1});
    for (const auto& [name, parameter] : fsdp::named_parameters(*s.tower)) {
      EXPECT_TRUE(torch::allclose(parameter.grad()->to_local(),
                                  want.at(name) / 2, 0.1, 0.1))
          << name;
    }
  });
}

TEST(Replicate, DividesByAFactorBeforeItSums) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ReplicateTower();
    for (FSDPModule module : fsdp_modules(*s.tower)) {
      module.set_gradient_divide_factor(4);
    }
    Step(s);
    ExpectGradients(s.tower, 0.25, {0, 1});
  });
}

TEST(Replicate, ClipsAndOptimizesAsOneProcess) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ReplicateTower();
    Step(s);
    double sum = 0;
    for (const auto& [name, gradient] : SummedGradients({0, 1})) {
      sum += (gradient / 2).pow(2).sum().item<double>();
    }
    const auto norm = clip_grad_norm_(s.tower->parameters(), 0.5);
    EXPECT_NEAR(norm.item<double>(), std::sqrt(sum), 1e-4);
    ExpectGradients(s.tower, 0.25 / std::sqrt(sum), {0, 1});
    torch::optim::SGD optimizer(s.tower->parameters(), 0.1);
    optimizer.step();
    const auto whole = MakeTower()->named_parameters();
    for (const auto& [name, parameter] : fsdp::named_parameters(*s.tower)) {
      const torch::Tensor want =
          whole[name] - 0.1 * parameter.grad()->to_local();
      EXPECT_TRUE(torch::allclose(parameter.full_tensor(), want)) << name;
    }
  });
}

TEST(Replicate, MixesWithShards) {
  RunRanks(4, [] {
    InitRank();
    for (const bool copies_below : {true, false}) {
      Tower tower = MakeTower();
      for (const auto& layer : tower->layers) {
        if (copies_below) {
          replicate(layer);
        } else {
          fully_shard(layer);
        }
      }
      if (copies_below) {
        fully_shard(tower);
      } else {
        replicate(std::vector{std::shared_ptr<torch::nn::Module>(tower.ptr())});
      }
      for (int step = 1; step <= 2; ++step) {
        LossOf(tower, InputOf(get_rank())).backward();
        ExpectGradients(tower, 0.25 * step, {0, 1, 2, 3});
      }
    }
  });
}

TEST(Replicate, OffloadsToTheCpuAndIgnoresParameters) {
  RunRanks(2, [] {
    InitRank();
    Tower tower = MakeTower();
    const torch::Tensor ignored = tower->top->weight;
    replicate(tower, {.offload_policy = CPUOffloadPolicy{.pin_memory = false},
                      .ignored_params = {ignored}});
    LossOf(tower, InputOf(get_rank())).backward();
    EXPECT_FALSE(dtensor_of(ignored).has_value());
    ExpectGradients(tower, 0.5, {0, 1});
    const auto own = SummedGradients({get_rank()});
    EXPECT_TRUE(torch::allclose(ignored.grad(), own.at("top.weight")));
  });
}

TEST(Replicate, IsDescribed) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ReplicateTower();
    std::ostringstream text;
    print(*s.tower, text);
    EXPECT_THAT(text.str(),
                HasSubstr("replicated over DeviceMesh((replicate=2,), 'cpu')"));
  });
}

TEST(Replicate, RefusesOtherMeshesAndModules) {
  RunRanks(2, [] {
    InitRank();
    Tower tower = MakeTower();
    const auto refuses = [&](const auto& call,
                             const std::vector<std::string>& says) {
      const ModuleSnapshot before(*tower);
      ExpectError<c10::ValueError>(call, says);
      before.ExpectSame(*tower);
    };
    refuses(
        [&] {
          replicate(tower, {.mesh = MeshOf({1, 2}, {"replicate", "shard"})});
        },
        {"replicate: the mesh must have 1 axis, not 2"});
    refuses(
        [&] { replicate(tower, {.mp_policy = {.param_dtype = torch::kInt}}); },
        {"param_dtype", "must be a floating type"});
    ExpectError<c10::ValueError>(
        [] { replicate(torch::nn::ModuleList(torch::nn::Linear(2, 2))); },
        {"replicate: a ", "ModuleList", " has no forward"});
    fully_shard(tower->layers[0]);
    ExpectError<c10::Error>(
        [&] { replicate(tower->layers[0]); },
        {"replicate can be applied to a module only once: a ", "Linear"});
    replicate(tower->layers[1]);
    ExpectError<c10::Error>(
        [&] { fully_shard(tower->layers[1]); },
        {"fully_shard can be applied to a module only once"});
    FSDPModule root = replicate(tower);
    ExpectError<c10::Error>(
        [&] { root.set_reshard_after_forward(true); },
        {"set_reshard_after_forward, but nothing is sharded",
         "copies of the root"});
    get_fsdp_module(*tower->layers[0]).set_reshard_after_forward(true);
  });
}

}  // namespace
}  // namespace fsdp::testing
