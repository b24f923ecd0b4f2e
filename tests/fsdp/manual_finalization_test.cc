// SPDX-License-Identifier: Apache-2.0
// Tests FSDPModule's end of a backward by hand (finalize_backward).

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/fully_shard.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/manual_steps.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/sharded_tower.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(FinalizeBackward, EndsABackward) {
  for (const int num_ranks : {1, 2, 3}) {
    RunRanks(num_ranks, [num_ranks] {
      InitRank();
      std::vector<int64_t> ranks;
      for (int64_t rank = 0; rank < num_ranks; ++rank) ranks.push_back(rank);
      for (const bool async : {false, true}) {
        Sharded s = ShardManually();
        for (int step = 1; step <= 3; ++step) {
          Step(s);
          GradientReductionHandle handle = s.root.finalize_backward(async);
          handle.wait();
          handle.wait();  // does nothing
          ExpectGradients(s.tower, static_cast<double>(step) / num_ranks,
                          ranks);
          EXPECT_EQ(step_report(*s.tower).unsharded_bytes, 0U);
        }
      }
    });
  }
}

TEST(FinalizeBackward, ReducesSeveralBackwardsOnce) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardManually();
    for (const bool async : {false, true}) {
      s.counts->Reset();
      s.root.set_requires_gradient_sync(false);
      for (int i = 0; i < 3; ++i) Step(s);
      ExpectNoGradients(*s.tower);
      EXPECT_EQ(s.counts->calls("reduce_scatter"), 0);
      s.root.set_requires_gradient_sync(true);
      s.root.finalize_backward(async).wait();
      EXPECT_EQ(s.counts->calls("reduce_scatter"), 4);
      ExpectGradients(s.tower, 1.5, {0, 1});
      ClearGradients(*s.tower);
    }
  });
}

// Pipelines run a stage's forwards before the first backward.
TEST(FinalizeBackward, EndsBackwardsOfSeveralForwards) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardManually();
    for (const bool sync : {true, false}) {
      s.root.set_requires_gradient_sync(sync);
      std::vector<torch::Tensor> losses;
      for (int i = 0; i < 3; ++i) {
        losses.push_back(LossOf(s.tower, InputOf(get_rank())));
      }
      for (const torch::Tensor& loss : losses) loss.backward();
      s.root.set_requires_gradient_sync(true);
      s.root.finalize_backward();
      ExpectGradients(s.tower, 1.5, {0, 1});
      ClearGradients(*s.tower);
    }
  });
}

TEST(FinalizeBackward, LeavesTheLastReductionInFlight) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardManually();
    s.root.set_reduce_scatter_max_input_buffers(8);
    const auto in_flight = [&s] {
      return s.root.state()->scheduler().comm().reductions().size();
    };
    Step(s);
    EXPECT_EQ(in_flight(), 4U);
    GradientReductionHandle handle = s.root.finalize_backward(/*async=*/true);
    EXPECT_EQ(in_flight(), 4U);
    ExpectNoGradients(*s.tower);
    handle.wait();
    EXPECT_EQ(in_flight(), 0U);
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

TEST(FinalizeBackward, FreesParametersThatBackwardKept) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardManually({.reshard_after_forward = false});
    s.root.set_reshard_after_backward(false);
    s.root.set_requires_gradient_sync(false);
    Step(s);
    EXPECT_TRUE(s.layers[0].is_unsharded());
    s.counts->Reset();
    Step(s);
    EXPECT_EQ(s.counts->calls("all_gather"), 0);
    s.root.set_reshard_after_backward(true);
    s.root.set_requires_gradient_sync(true);
    s.root.finalize_backward();
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, 0U);
    ExpectGradients(s.tower, 1, {0, 1});
  });
}

TEST(FinalizeBackward, FollowsTheSwitchesOfThisMoment) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardManually();
    s.root.set_requires_gradient_sync(false);
    Step(s);
    // Not reduced now, but by the next call, which no backward precedes.
    s.root.finalize_backward();
    ExpectNoGradients(*s.tower);
    s.root.set_requires_gradient_sync(true);
    s.root.finalize_backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
    s.counts->Reset();
    s.root.finalize_backward();
    EXPECT_THAT(s.Counts(), IsEmpty());
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

TEST(FinalizeBackward, SupersedesTheLastBackward) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardManually();
    s.root.set_is_last_backward(false);
    Step(s);
    s.root.finalize_backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
    // By itself again.
    s.root.set_is_last_backward(true);
    s.root.set_manual_backward_finalization(false);
    Step(s);
    ExpectGradients(s.tower, 1, {0, 1});
  });
}

TEST(FinalizeBackward, ReplicatesAndReshardsToFewerRanks) {
  RunRanks(4, [] {
    InitRank();
    for (const bool hybrid : {true, false}) {
      Sharded s = hybrid ? ShardManually({.mesh = HybridMesh()})
                         : ShardManually({.reshard_after_forward = 2});
      for (const bool async : {false, true}) {
        s.root.set_requires_gradient_sync(false);
        Step(s);
        s.root.set_requires_gradient_sync(true);
        Step(s);
        s.root.finalize_backward(async).wait();
        ExpectGradients(s.tower, 0.5, {0, 1, 2, 3});
        ClearGradients(*s.tower);
      }
    }
  });
}

TEST(FinalizeBackward, ReducesParametersThatARankDidNotUse) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardManually({.reshard_after_forward = false});
    s.root.set_reduce_scatter_unused_params(true);
    torch::nn::Linear& layer = s.tower->layers[1];
    for (int step = 1; step <= 2; ++step) {
      const torch::Tensor h = s.tower->stem(InputOf(get_rank()));
      // Rank 0 does not use the bias.
      const torch::Tensor y =
          get_rank() == 0 ? h.matmul(layer->weight.t()) : layer(h);
      s.tower->top(y).sum().backward();
      s.root.finalize_backward();
      const torch::Tensor top = dtensor_of(s.tower->top->weight)->full_tensor();
      EXPECT_TRUE(torch::allclose(
          dtensor_of(layer->bias)->grad()->full_tensor(), top.sum(0) * step));
      s.counts->Reset();
      s.root.finalize_backward();
      EXPECT_THAT(s.Counts(), IsEmpty());
    }
  });
}

TEST(FinalizeBackward, IsNothingBeforeTheFirstForward) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.root.finalize_backward();
    s.root.finalize_backward(/*async=*/true).wait();
    s.root.set_manual_backward_finalization(true);
    s.root.finalize_backward(/*async=*/true).wait();
    EXPECT_THAT(s.Counts(), IsEmpty());
  });
}

TEST(FinalizeBackward, MayFollowABackwardThatReachesNoParameter) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardManually();
    {
      const torch::Tensor w = torch::ones({4}, torch::requires_grad());
      (s.tower->forward(InputOf(0)).detach() * w).sum().backward();
    }
    s.root.finalize_backward();
    Step(s);
    s.root.finalize_backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

TEST(FinalizeBackward, IsForTheRoot) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    const auto expect_refuses = [&s](const char* name,
                                     const std::function<void()>& call) {
      ExpectRefuses(s, call, {name, " is for the root, not for '1'"});
    };
    expect_refuses("set_manual_backward_finalization", [&s] {
      s.layers[1].set_manual_backward_finalization(true);
    });
    expect_refuses("finalize_backward",
                   [&s] { s.layers[1].finalize_backward(); });
    expect_refuses("reset_iter_state",
                   [&s] { s.layers[1].reset_iter_state(); });
    // A module that is the root may get a root above it.
    Tower tower = MakeTower();
    fully_shard(tower->layers[1]).set_manual_backward_finalization(true);
    ExpectError<c10::Error>(
        [&tower] { fully_shard(tower); },
        {"set_manual_backward_finalization(true) was called on a ", "Linear",
         "below a ", "Tower", "for the root alone"});
    get_fsdp_module(*tower->layers[1]).set_manual_backward_finalization(false);
    fully_shard(tower);
  });
}

TEST(FinalizeBackward, IsRefusedInTheWrongPlace) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    Step(s);
    ExpectRefuses(s, [&s] { s.root.finalize_backward(); },
                  {"finalize_backward, but each backward ends by itself",
                   "set_manual_backward_finalization(true)"});
    s.root.set_manual_backward_finalization(true);
    s.Forward();
    for (const bool async : {false, true}) {
      ExpectRefuses(s, [&] { s.root.finalize_backward(async); },
                    {"finalize_backward between forward and backward",
                     "used 'stem.weight'"});
    }
    std::string in_backward;
    torch::Tensor x = InputOf(get_rank()).requires_grad_();
    const torch::Tensor loss = LossOf(s.tower, x);
    x.register_hook([&](const torch::Tensor&) {
      in_backward = ThrownMessage([&s] { s.root.finalize_backward(); });
    });
    loss.backward();
    EXPECT_THAT(in_backward, HasSubstr("finalize_backward during a backward"));
    s.root.finalize_backward();
    ExpectGradients(s.tower, 1, {0, 1});
  });
}

TEST(FinalizeBackward, HasOnePendingHandle) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardManually();
    Step(s);
    GradientReductionHandle handle = s.root.finalize_backward(/*async=*/true);
    for (const bool async : {false, true}) {
      ExpectRefuses(s, [&] { s.root.finalize_backward(async); },
                    {"finalize_backward while an earlier one is pending"});
    }
    ExpectRefuses(
        s, [&s] { s.Forward(); },
        {"use of the root while gradients are being reduced", "wait()"});
    handle.wait();
    Step(s);
    s.root.finalize_backward();
    ExpectGradients(s.tower, 1, {0, 1});
  });
}

TEST(FinalizeBackward, KnowsRootsThatShareItsCommunication) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardManually();
    Sharded other = ShardManually();
    share_comm_ctx({s.root, other.root});
    s.root.set_reduce_scatter_max_input_buffers(9);
    Step(s);
    Step(other);
    ExpectRefuses(s, [&s] { s.root.finalize_backward(/*async=*/true); },
                  {"while another root", "share_comm_ctx"});
    other.root.finalize_backward();
    ExpectGradients(other.tower, 0.5, {0, 1});
    GradientReductionHandle handle = s.root.finalize_backward(/*async=*/true);
    ExpectRefuses(s, [&] { other.root.finalize_backward(); },
                  {"while another root's is pending"});
    ExpectRefuses(s, [&] { other.Forward(); },
                  {"while gradients are being reduced"});
    ExpectRefuses(s, [&] { other.root.reset_iter_state(); },
                  {"another root's finalize_backward is pending"});
    ExpectRefuses(s,
                  [&] {
                    share_comm_ctx({other.root, s.root});
                  },
                  {"share_comm_ctx while gradients are being reduced"});
    handle.wait();
    Step(other);
    other.root.finalize_backward();
    ExpectGradients(other.tower, 1, {0, 1});
    ExpectGradients(s.tower, 0.5, {0, 1});
    // A model that is gone has nothing pending.
    {
      Sharded gone = ShardManually();
      share_comm_ctx({s.root, gone.root});
      Step(gone);
      gone.root.finalize_backward(/*async=*/true);
    }
    Step(s);
    s.root.finalize_backward();
    ExpectGradients(s.tower, 1, {0, 1});
  });
}

TEST(FinalizeBackward, RefusesAPostponedAllReduce) {
  RunRanks(4, [] {
    InitRank();
    Sharded s = ShardManually({.mesh = HybridMesh()});
    s.layers[2].set_requires_all_reduce(false);
    Step(s);
    for (const bool on : {false, true}) {
      s.root.set_requires_all_reduce(on);
      ExpectRefuses(s, [&s] { s.root.finalize_backward(); },
                    {"a sum of '2' that waits for a postponed all-reduce",
                     "set_manual_backward_finalization(false)"});
    }
    s.root.reset_iter_state();
    s.root.set_requires_gradient_sync(false);
    Step(s);
    s.root.set_requires_gradient_sync(true);
    s.layers[1].set_requires_all_reduce(false);
    ExpectRefuses(
        s, [&s] { s.root.finalize_backward(/*async=*/true); },
        {"the all-reduce of '1' is off", "set_requires_all_reduce(true)"});
    s.root.set_requires_all_reduce(true);
    s.root.finalize_backward();
    ExpectGradients(s.tower, 0.25, {0, 1, 2, 3});
  });
}

TEST(SetManualBackwardFinalization, DoesNotChangeAmidABackward) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardManually();
    std::string in_backward;
    s.Forward();
    s.loss.register_hook([&](const torch::Tensor&) {
      s.root.set_manual_backward_finalization(true);  // not a change
      in_backward = ThrownMessage(
          [&s] { s.root.set_manual_backward_finalization(false); });
    });
    s.Backward();
    EXPECT_THAT(in_backward, HasSubstr("(false) during a backward"));
    ExpectRefuses(s, [&s] { s.root.set_manual_backward_finalization(false); },
                  {"(false) after a backward has begun with the opposite"});
    s.root.finalize_backward();
    s.root.set_manual_backward_finalization(false);
    s.root.set_is_last_backward(false);
    Step(s);
    ExpectRefuses(s, [&s] { s.root.set_manual_backward_finalization(true); },
                  {"(true) after a backward has begun with the opposite"});
    s.root.set_is_last_backward(true);
    Step(s);
    s.root.set_manual_backward_finalization(true);
    ExpectGradients(s.tower, 1.5, {0, 1});
  });
}

}  // namespace
}  // namespace fsdp::testing
