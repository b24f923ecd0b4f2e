// SPDX-License-Identifier: Apache-2.0
// Tests FSDPModule::reset_iter_state: a clean state after an exception.

#include <cstddef>
#include <string>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/collective_errors.h"
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

// The loss, or an exception in forward or backward before layer `at`.
torch::Tensor LossThatFails(Sharded& s, size_t at, bool in_forward) {
  torch::Tensor h = s.tower->stem(InputOf(get_rank()));
  for (size_t i = 0; i < s.tower->layers.size(); ++i) {
    if (i == at) {
      TORCH_CHECK(!in_forward, "on purpose");
      h.register_hook([](const torch::Tensor&) -> torch::Tensor {
        TORCH_CHECK(false, "on purpose");
      });
    }
    h = torch::tanh(s.tower->layers[i](h));
  }
  return s.tower->top(h).pow(2).sum();
}

void Fail(Sharded& s, size_t at, bool in_forward) {
  EXPECT_THAT(
      ThrownMessage([&] { LossThatFails(s, at, in_forward).backward(); }),
      HasSubstr("on purpose"));
}

void ExpectNextStepIsRight(Sharded& s) {
  s.root.reset_iter_state();
  EXPECT_EQ(step_report(*s.tower).unsharded_bytes, 0U);
  ExpectNoGradients(*s.tower);
  const bool manual = s.root.state()->scheduler().manual_finalization();
  for (int i = 1; i <= 2; ++i) {
    Step(s);
    if (manual) s.root.finalize_backward(/*async=*/true).wait();
    ExpectGradients(s.tower, 0.5 * i, {0, 1});
  }
  s.root.reset_iter_state();
}

TEST(ResetIterState, LeavesNothingOfAStepThatFailed) {
  RunRanks(2, [] {
    InitRank();
    for (const bool manual : {false, true}) {
      Sharded s = ShardTower();
      s.root.set_manual_backward_finalization(manual);
      s.root.set_reduce_scatter_max_input_buffers(4);
      for (const bool in_forward : {true, false}) {
        for (size_t at = 0; at < 3; ++at) {
          Fail(s, at, in_forward);
          ExpectNextStepIsRight(s);
        }
      }
    }
  });
}

TEST(ResetIterState, DropsMicrobatchesAndParametersThatWereKept) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower({.reshard_after_forward = false});
    s.root.set_reshard_after_backward(false);
    s.root.set_requires_gradient_sync(false);
    Step(s);
    s.root.set_requires_gradient_sync(true);
    Fail(s, 1, /*in_forward=*/false);
    s.layers[0].unshard(/*async=*/true);
    s.layers[1].unshard();
    s.root.set_reshard_after_backward(true);
    ExpectNextStepIsRight(s);
  });
}

TEST(ResetIterState, DropsSumsThatWaitForAnAllReduce) {
  RunRanks(4, [] {
    InitRank();
    Sharded s = ShardTower({.mesh = HybridMesh()});
    s.root.set_requires_all_reduce(false);
    Step(s);
    s.root.set_requires_all_reduce(true);
    s.root.reset_iter_state();
    Step(s);
    ExpectGradients(s.tower, 0.25, {0, 1, 2, 3});
  });
}

TEST(ResetIterState, AgreesOnRanksThatDidNotFail) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    // Another rank has failed after the last collective of the step.
    Step(s);
    ExpectNextStepIsRight(s);
    // Rank 1 fails between two gathers: rank 0 waits for it, and both learn of
    // it when rank 1 begins the next step.
    int num_failures = 0;
    const auto step = [&](bool fails) {
      const std::string failure = CatchErrorText([&] {
        if (fails) LossThatFails(s, 1, /*in_forward=*/true);
        Step(s);
      });
      if (failure.empty()) return true;
      ++num_failures;
      s.root.reset_iter_state();
      return false;
    };
    bool fails = get_rank() == 1;
    while (!step(fails)) fails = false;
    EXPECT_EQ(num_failures, get_rank() == 1 ? 2 : 1);
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

TEST(ResetIterState, InvalidatesAHandle) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardManually();
    Step(s);
    GradientReductionHandle old = s.root.finalize_backward(/*async=*/true);
    s.root.reset_iter_state();
    ExpectRefuses(s, [&old] { old.wait(); },
                  {"wait() of a handle of finalize_backward after "
                   "reset_iter_state"});
    Step(s);
    GradientReductionHandle handle = s.root.finalize_backward(/*async=*/true);
    ExpectRefuses(s, [&old] { old.wait(); }, {"after reset_iter_state"});
    handle.wait();
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

TEST(ResetIterState, ComesBeforeFinalizeBackwardAfterAnException) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardManually();
    Fail(s, 1, /*in_forward=*/false);
    ExpectRefuses(
        s, [&s] { s.root.finalize_backward(); },
        {"finalize_backward after a backward that threw", "reset_iter_state"});
    ExpectNextStepIsRight(s);
    std::string in_backward;
    s.Forward();
    s.loss.register_hook([&](const torch::Tensor&) {
      in_backward = ThrownMessage([&s] { s.root.reset_iter_state(); });
    });
    s.Backward();
    EXPECT_THAT(in_backward, HasSubstr("reset_iter_state during a backward"));
    s.root.finalize_backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

TEST(ResetIterState, IsNothingBeforeTheFirstForward) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.root.reset_iter_state();
    EXPECT_THAT(s.Counts(), IsEmpty());
    Step(s);
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

}  // namespace
}  // namespace fsdp::testing
