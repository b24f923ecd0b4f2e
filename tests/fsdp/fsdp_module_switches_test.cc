// SPDX-License-Identifier: Apache-2.0
// Tests FSDPModule's switches that change how the engine works and not what it
// computes: kept storage, more inputs of reductions, a process group for
// reductions.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/sharded_tower.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ReduceScatterUnusedParams, HasAnOlderName) {
  RunRanks(1, [] {
    InitRank();
    Sharded s = ShardTower();
    const auto values = [&s] {
      std::vector<bool> all{
          s.root.state()->group()->settings().reduce_scatter_unused_params};
      for (const FSDPModule& layer : s.layers) {
        all.push_back(
            layer.state()->group()->settings().reduce_scatter_unused_params);
      }
      return all;
    };
    s.root.set_zero_missing_gradients(true);
    EXPECT_THAT(values(), Each(true));
    s.root.set_reduce_scatter_unused_params(false, /*recurse=*/false);
    EXPECT_THAT(values(), ElementsAre(false, true, true, true));
  });
}

// ---- Kept storage ----------------------------------------------------------

// Gathers, and returns where the weight is.
const void* GatheredAt(FSDPModule& layer, const torch::nn::Linear& linear) {
  layer.unshard();
  const void* address = linear->weight.const_data_ptr();
  layer.reshard();
  return address;
}

// Takes memory that was freed.
std::vector<torch::Tensor> Blocks(const torch::Tensor& like) {
  std::vector<torch::Tensor> blocks;
  for (int i = 0; i < 64; ++i) {
    blocks.push_back(torch::empty({like.numel()}, like.scalar_type()));
  }
  return blocks;
}

void ExpectAddressesStay(const FullyShardOptions& options) {
  Sharded s = ShardTower(options);
  s.root.set_keep_unsharded_storage(true);
  const torch::nn::Linear& linear = s.tower->layers[1];
  const void* address = GatheredAt(s.layers[1], linear);
  EXPECT_THAT(ThrownMessage([&] { linear->weight.const_data_ptr(); }),
              HasSubstr("sharded at the moment"));
  for (int step = 0; step < 2; ++step) {
    const auto blocks = Blocks(linear->weight);
    s.Forward();
    s.Backward();
    EXPECT_FALSE(s.layers[1].is_unsharded());
    EXPECT_EQ(GatheredAt(s.layers[1], linear), address);
  }
}

TEST(KeepUnshardedStorage, AddressesSurvive) {
  RunRanks(2, [] {
    InitRank();
    ExpectAddressesStay({});
    ExpectAddressesStay({.mp_policy = {.param_dtype = torch::kBFloat16}});
    ExpectAddressesStay(
        {.offload_policy = CPUOffloadPolicy{.pin_memory = false}});
  });
  // One rank computes in the shards' memory, unless it casts.
  RunRanks(1, [] {
    InitRank();
    ExpectAddressesStay({});
    ExpectAddressesStay({.mp_policy = {.param_dtype = torch::kBFloat16}});
  });
  RunRanks(4, [] {
    InitRank();
    ExpectAddressesStay({.reshard_after_forward = 2});
    ExpectAddressesStay({.mesh = HybridMesh()});
  });
}

TEST(KeepUnshardedStorage, TrainsAsWithoutAndReportsItsMemory) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower({.reshard_after_forward = true});
    s.layers[0].set_keep_unsharded_storage(true);
    s.Forward();
    s.Backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
    const uint64_t layer = (6 * 6 + 6) * sizeof(float);
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, layer);
    s.root.set_keep_unsharded_storage(true);
    s.Forward();
    s.Backward();
    ExpectGradients(s.tower, 1, {0, 1});
    const uint64_t root = (4 * 6 + 6 + 6 * 4 + 4) * sizeof(float);
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, root + 3 * layer);
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes_peak, root + 3 * layer);
    // Not those below.
    s.root.set_keep_unsharded_storage(false, /*recurse=*/false);
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, 3 * layer);
    s.root.set_keep_unsharded_storage(false);
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, 0U);
    s.Forward();
    s.Backward();
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, 0U);
    ExpectGradients(s.tower, 1.5, {0, 1});
  });
}

TEST(KeepUnshardedStorage, EndsWithAnotherDtypeOrContext) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.root.set_keep_unsharded_storage(true);
    s.Forward();
    s.Backward();
    s.tower->to(torch::kDouble);
    const torch::Tensor x = InputOf(get_rank()).to(torch::kDouble);
    LossOf(s.tower, x).backward();
    const uint64_t numel = 58 + 3 * 42;
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, numel * sizeof(double));
    // Another root's context reports memory that is gathered from now on.
    Sharded other = ShardTower();
    share_comm_ctx({other.root, s.root});
    EXPECT_EQ(step_report(*other.tower).unsharded_bytes, 0U);
    LossOf(s.tower, x).backward();
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, numel * sizeof(double));
  });
}

// ---- Inputs of reductions --------------------------------------------------

CommContext& ContextOf(const Sharded& s) {
  return s.root.state()->scheduler().comm();
}

// How many reductions were in flight when each one began.
std::vector<int64_t> InFlight(Sharded& s) {
  std::vector<int64_t> counts;
  s.counts->set_observer([&](const std::string& op, const at::TensorList) {
    if (op == "reduce_scatter") {
      counts.push_back(static_cast<int64_t>(ContextOf(s).reductions().size()));
    }
  });
  s.Forward();
  s.Backward();
  s.counts->set_observer(nullptr);
  EXPECT_THAT(ContextOf(s).reductions(), IsEmpty());
  return counts;
}

TEST(ReduceScatterMaxInputBuffers, BoundsReductionsInFlight) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    EXPECT_THAT(InFlight(s), ElementsAre(0, 0, 0, 0));
    s.root.set_reduce_scatter_max_input_buffers(3);
    EXPECT_THAT(InFlight(s), ElementsAre(0, 1, 2, 2));
    s.root.set_reduce_scatter_max_input_buffers(9);
    EXPECT_THAT(InFlight(s), ElementsAre(0, 1, 2, 3));
    ExpectGradients(s.tower, 1.5, {0, 1});
  });
}

TEST(ReduceScatterMaxInputBuffers, IsTheMostOfAllGroups) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.layers[1].set_reduce_scatter_max_input_buffers(2);
    s.root.set_reduce_scatter_max_input_buffers(3, /*recurse=*/false);
    EXPECT_EQ(ContextOf(s).max_input_buffers(), 3U);
    s.root.set_reduce_scatter_max_input_buffers(1, /*recurse=*/false);
    EXPECT_EQ(ContextOf(s).max_input_buffers(), 2U);
    EXPECT_THAT(InFlight(s), ElementsAre(0, 1, 1, 1));
    ExpectGradients(s.tower, 0.5, {0, 1});
    // With one context, of all roots.
    Sharded other = ShardTower();
    share_comm_ctx({other.root, s.root});
    EXPECT_EQ(ContextOf(other).max_input_buffers(), 2U);
    s.root.set_reduce_scatter_max_input_buffers(1);
    EXPECT_EQ(ContextOf(other).max_input_buffers(), 1U);
  });
}

TEST(ReduceScatterMaxInputBuffers, IsKeptWhenARootIsAdded) {
  RunRanks(2, [] {
    InitRank();
    Tower tower = MakeTower();
    for (const auto& layer : tower->layers) {
      fully_shard(layer).set_reduce_scatter_max_input_buffers(2);
    }
    const FSDPModule root = fully_shard(tower);
    EXPECT_EQ(root.state()->scheduler().comm().max_input_buffers(), 2U);
  });
}

TEST(ReduceScatterMaxInputBuffers, IsAtLeastOne) {
  RunRanks(1, [] {
    InitRank();
    Sharded s = ShardTower();
    for (const int bad : {0, -3}) {
      ExpectError<c10::ValueError>(
          [&] { s.layers[1].set_reduce_scatter_max_input_buffers(bad); },
          {std::to_string(bad) + " input buffers for reduce-scatters of '1'",
           "at least 1"});
    }
    EXPECT_EQ(ContextOf(s).max_input_buffers(), 1U);
  });
}

TEST(ReduceScatterMaxInputBuffers, AccumulatesAndReplicates) {
  RunRanks(4, [] {
    InitRank();
    Sharded s = ShardTower({.mesh = HybridMesh()});
    s.root.set_reduce_scatter_max_input_buffers(4);
    s.root.set_requires_all_reduce(false);
    s.Forward();
    s.Backward();
    s.root.set_requires_all_reduce(true);
    s.Forward();
    s.Backward();
    ExpectGradients(s.tower, 0.5, {0, 1, 2, 3});
  });
}

TEST(ReduceScatterMaxInputBuffers, OfAGroupThatCheckpointsRunTwice) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.root.set_reduce_scatter_max_input_buffers(8);
    Tower reference = MakeTower();
    const auto twice = [](Tower& tower, const torch::Tensor& x) {
      torch::Tensor h = tower->stem(x);
      for (int i = 0; i < 2; ++i) {
        h = checkpoint(
            [&tower](const torch::Tensor& t) {
              return tower->layers[0](t).tanh();
            },
            h);
      }
      return tower->top(h).pow(2).sum();
    };
    twice(s.tower, InputOf(get_rank())).backward();
    for (const int64_t rank : {0, 1}) {
      twice(reference, InputOf(rank)).backward();
    }
    const auto want = reference->named_parameters();
    for (const auto& [name, parameter] : fsdp::named_parameters(*s.tower)) {
      ASSERT_EQ(parameter.grad().has_value(), want[name].grad().defined());
      if (!parameter.grad().has_value()) continue;
      EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                  want[name].grad() / 2, 1e-4, 1e-6))
          << name;
    }
  });
}

TEST(ReduceScatterMaxInputBuffers, AFailedBackwardDropsThemAll) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.root.set_reduce_scatter_max_input_buffers(8);
    torch::Tensor h = s.tower->stem(InputOf(get_rank()));
    h.register_hook([](const torch::Tensor&) -> torch::Tensor {
      TORCH_CHECK(false, "on purpose");
    });
    for (torch::nn::Linear& layer : s.tower->layers) h = layer(h).tanh();
    const torch::Tensor loss = s.tower->top(h).sum();
    EXPECT_THAT(ThrownMessage([&] { loss.backward(); }),
                HasSubstr("on purpose"));
    s.Forward();
    s.Backward();
    EXPECT_THAT(ContextOf(s).reductions(), IsEmpty());
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

// ---- A process group for reductions ----------------------------------------

const GroupConfig& ConfigOf(const FSDPModule& module) {
  return module.state()->group()->config();
}

void ExpectReducesElsewhere(const FullyShardOptions& options,
                            const std::vector<int64_t>& ranks) {
  const double share = 1.0 / static_cast<double>(ranks.size());
  Sharded s = ShardTower(options);
  s.root.set_separate_reduce_scatter_group();
  const ProcessGroup separate = ConfigOf(s.root).reduce_scatter_group;
  ASSERT_TRUE(separate);
  EXPECT_NE(separate, ConfigOf(s.root).shard_group);
  EXPECT_EQ(get_process_group_ranks(separate),
            get_process_group_ranks(ConfigOf(s.root).shard_group));
  for (const FSDPModule& layer : s.layers) {
    EXPECT_EQ(ConfigOf(layer).reduce_scatter_group, separate);
  }
  CountingBackend& reductions = Count(separate);
  s.Forward();
  s.Backward();
  EXPECT_EQ(s.counts->calls("reduce_scatter"), 0);
  EXPECT_EQ(reductions.ToString(), "reduce_scatter 4");
  ExpectGradients(s.tower, share, ranks);
  // Again, the same one; and back, for one group.
  s.root.set_separate_reduce_scatter_group(true);
  EXPECT_EQ(ConfigOf(s.layers[0]).reduce_scatter_group, separate);
  s.root.set_separate_reduce_scatter_group(false, /*recurse=*/false);
  s.Forward();
  s.Backward();
  EXPECT_EQ(s.counts->calls("reduce_scatter"), 1);
  EXPECT_EQ(reductions.calls(), 7);
  ExpectGradients(s.tower, 2 * share, ranks);
}

TEST(SeparateReduceScatterGroup, ReducesThere) {
  RunRanks(2, [] {
    InitRank();
    ExpectReducesElsewhere({}, {0, 1});
  });
  RunRanks(3, [] {
    InitRank();
    ExpectReducesElsewhere({}, {0, 1, 2});
  });
  RunRanks(4, [] {
    InitRank();
    ExpectReducesElsewhere({.mesh = HybridMesh()}, {0, 1, 2, 3});
  });
}

TEST(SeparateReduceScatterGroup, OfOneRankIsNone) {
  RunRanks(1, [] {
    InitRank();
    Sharded s = ShardTower();
    s.root.set_separate_reduce_scatter_group();
    EXPECT_FALSE(ConfigOf(s.root).reduce_scatter_group);
    s.Forward();
    s.Backward();
    ExpectGradients(s.tower, 1, {0});
  });
}

TEST(SeparateReduceScatterGroup, IsGivenToACustomReduceScatter) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.root.set_separate_reduce_scatter_group();
    c10d::ProcessGroup* seen = nullptr;
    s.layers[2].set_custom_reduce_scatter(
        [&](at::Tensor output, at::Tensor, c10d::ProcessGroup& group) {
          seen = &group;
          output.fill_(7);
        });
    s.Forward();
    s.Backward();
    EXPECT_EQ(seen, ConfigOf(s.root).reduce_scatter_group.get());
  });
}

// A rank that diverges in the group of reductions is named, too.
TEST(SeparateReduceScatterGroup, IsCheckedForOrder) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.root.set_separate_reduce_scatter_group();
    const torch::Tensor h = s.tower->stem(InputOf(get_rank()));
    const torch::Tensor loss =
        get_rank() == 0 ? h.sum() : s.tower->top(h).sum();
    EXPECT_THAT(ThrownMessage([&] { loss.backward(); }),
                HasSubstr("without gradients of 'top.weight'"));
  });
}

}  // namespace
}  // namespace fsdp::testing
