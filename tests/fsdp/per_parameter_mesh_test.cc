// SPDX-License-Identifier: Apache-2.0
// Tests calls of fully_shard in which shard_placement_fn gives parameters
// meshes of their own: several groups for one call.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/fully_shard.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/mlp_tower.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/sharded_tower.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Weights lie on `own`, biases on the call's mesh.
FullyShardOptions WeightsOn(const DeviceMesh& own, const DeviceMesh& mesh) {
  return {.mesh = mesh,
          .shard_placement_fn =
              [own](const at::Tensor& parameter) -> ShardPlacementResult {
            if (parameter.dim() == 1) return std::nullopt;
            return {Shard(0), own};
          }};
}

Tower ShardLayers(const FullyShardOptions& options) {
  Tower tower = MakeTower();
  for (const auto& layer : tower->layers) fully_shard(layer, options);
  fully_shard(tower, options);
  return tower;
}

void Step(Tower& tower) { LossOf(tower, InputOf(get_rank())).backward(); }

TEST(PerParameterMesh, MakesAGroupForEachMesh) {
  RunRanks(4, [] {
    InitRank();
    const DeviceMesh pairs = HybridMesh();
    const DeviceMesh all = MeshOf({4});
    Tower tower = ShardLayers(WeightsOn(pairs, all));
    for (const FSDPModule& module : fsdp_modules(*tower)) {
      ASSERT_EQ(module.state()->groups().size(), 2U);
    }
    for (const auto& [name, parameter] : fsdp::named_parameters(*tower)) {
      if (parameter.shape().size() == 1) {
        EXPECT_EQ(parameter.device_mesh(), all) << name;
        EXPECT_THAT(parameter.placements(), ElementsAre(Shard(0)));
      } else {
        EXPECT_EQ(parameter.device_mesh(), pairs) << name;
        EXPECT_THAT(parameter.placements(), ElementsAre(Replicate(), Shard(0)));
      }
    }
    // Both average over all ranks.
    CountingBackend& wide = Count(all.get_group());
    CountingBackend& narrow = Count(pairs.get_group("shard"));
    CountingBackend& copies = Count(pairs.get_group("replicate"));
    for (int step = 1; step <= 3; ++step) {
      wide.Reset();
      narrow.Reset();
      copies.Reset();
      Step(tower);
      ExpectGradients(tower, 0.25 * step, {0, 1, 2, 3});
      EXPECT_EQ(wide.calls("all_gather"), narrow.calls("all_gather"));
      EXPECT_EQ(wide.calls("reduce_scatter"), 4);
      EXPECT_EQ(narrow.calls("reduce_scatter"), 4);
      EXPECT_EQ(copies.ToString(), "all_reduce 4");
      EXPECT_EQ(step_report(*tower).unsharded_bytes, 0U);
    }
  });
}

// As experts do that other ranks do not have.
TEST(PerParameterMesh, AveragesOverTheOwnMesh) {
  RunRanks(4, [] {
    InitRank();
    const DeviceMesh pairs = HybridMesh();
    Tower tower = ShardLayers(WeightsOn(pairs["shard"], MeshOf({4})));
    Step(tower);
    const int64_t first = get_rank() / 2 * 2;
    const auto wide = SummedGradients({0, 1, 2, 3});
    const auto narrow = SummedGradients({first, first + 1});
    for (const auto& [name, parameter] : fsdp::named_parameters(*tower)) {
      const torch::Tensor want = parameter.shape().size() == 1
                                     ? wide.at(name) / 4
                                     : narrow.at(name) / 2;
      EXPECT_TRUE(
          torch::allclose(parameter.grad()->full_tensor(), want, 1e-4, 1e-6))
          << name;
    }
  });
}

TEST(PerParameterMesh, GathersAllGroupsOfACallTogether) {
  RunRanks(4, [] {
    InitRank();
    const DeviceMesh pairs = HybridMesh();
    Tower tower = ShardLayers(WeightsOn(pairs, MeshOf({4})));
    FSDPModule layer = get_fsdp_module(*tower->layers[1]);
    EXPECT_FALSE(layer.is_unsharded());
    layer.unshard(/*async=*/true).wait();
    EXPECT_TRUE(layer.is_unsharded());
    layer.reshard();
    EXPECT_FALSE(layer.is_unsharded());
    // An operator that takes the weight alone gathers the bias, too.
    tower->layers[1]->weight.matmul(torch::ones({6}));
    Step(tower);
    ExpectGradients(tower, 0.25, {0, 1, 2, 3});
  });
}

TEST(PerParameterMesh, FollowsSwitchesAndHandles) {
  RunRanks(4, [] {
    InitRank();
    const DeviceMesh pairs = HybridMesh();
    for (const bool reshards : {false, true}) {
      FullyShardOptions options = WeightsOn(pairs, MeshOf({4}));
      if (reshards) options.reshard_after_forward = true;
      Tower tower = ShardLayers(options);
      FSDPModule root = get_fsdp_module(*tower);
      std::vector<FSDPModule> modules = fsdp_modules(*tower);
      modules[1].set_modules_to_forward_prefetch({modules[2]});
      modules[2].set_modules_to_backward_prefetch({modules[1]});
      root.set_manual_backward_finalization(true);
      root.set_requires_gradient_sync(false);
      Step(tower);
      root.set_requires_gradient_sync(true);
      Step(tower);
      root.finalize_backward(/*async=*/true).wait();
      ExpectGradients(tower, 0.5, {0, 1, 2, 3});
      const auto norm = clip_grad_norm_(tower->parameters(), 1e6);
      double sum = 0;
      for (const auto& [name, gradient] : SummedGradients({0, 1, 2, 3})) {
        sum += (gradient / 2).pow(2).sum().item<double>();
      }
      EXPECT_NEAR(norm.item<double>(), std::sqrt(sum), 1e-3);
      root.reset_iter_state();
      ExpectNoGradients(*tower);
    }
  });
}

TEST(PerParameterMesh, RefusesWhatIsForOneMesh) {
  RunRanks(4, [] {
    InitRank();
    Tower tower = ShardLayers(WeightsOn(HybridMesh(), MeshOf({4})));
    FSDPModule layer = get_fsdp_module(*tower->layers[1]);
    const auto refuses = [](const char* name, const auto& call) {
      ExpectError<c10::Error>(
          call, {std::string("fsdp: ") + name, "parameters on one mesh",
                 "those of '1' are on 2"});
    };
    refuses("set_custom_all_gather",
            [&] { layer.set_custom_all_gather(nullptr); });
    refuses("set_custom_reduce_scatter",
            [&] { layer.set_custom_reduce_scatter(nullptr); });
    refuses("set_all_reduce_hook", [&] { layer.set_all_reduce_hook(nullptr); });
  });
}

TEST(PerParameterMesh, RefusesMeshesByTheParametersName) {
  RunRanks(4, [] {
    InitRank();
    Tower tower = MakeTower();
    const ModuleSnapshot before(*tower);
    const auto refuses = [&](const FullyShardOptions& options,
                             const std::vector<std::string>& says) {
      ExpectError<c10::ValueError>([&] { fully_shard(tower, options); }, says);
      before.ExpectSame(*tower);
    };
    const DeviceMesh all = MeshOf({4});
    refuses(
        WeightsOn(MeshOf({1, 2, 2}, {"a", "b", "c"}), all),
        {"shard_placement_fn gives for 'stem.weight'", "1 or 2 axes, not 3"});
    // The same process group under two names.
    refuses(WeightsOn(MeshOf({4}, {"dp"}), all),
            {"'stem.bias' is to be on ", "'stem.weight' on ",
             "the same process groups"});
    FullyShardOptions uneven = WeightsOn(HybridMesh(), all);
    uneven.reshard_after_forward = 4;
    refuses(uneven, {"reshard_after_forward is 4", "number of shards, 2"});
  });
}

TEST(PerParameterMesh, IsDescribed) {
  RunRanks(4, [] {
    InitRank();
    Tower tower = ShardLayers(WeightsOn(HybridMesh(), MeshOf({4})));
    const std::string text = to_string(*tower);
    EXPECT_THAT(text, HasSubstr("FSDP over DeviceMesh((4,), 'cpu')"));
    EXPECT_THAT(text, HasSubstr("(replicate=2, shard=2), 'cpu')"));
  });
}

}  // namespace
}  // namespace fsdp::testing
