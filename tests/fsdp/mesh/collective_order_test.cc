// SPDX-License-Identifier: Apache-2.0
// Ranks that diverge get an error that names them, instead of a hang or wrong
// numbers: from their neighbours, and in debug mode from all ranks.

#include "fsdp/mesh/collective_order.h"

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"

namespace fsdp::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const RanksOptions kDebug = {.environment = {{"TESSERA_FSDP_DEBUG", "1"}}};

// Two layers, each a group, and a root without parameters.
struct Net {
  explicit Net(int64_t size = 4) {
    at::set_num_threads(1);
    torch::manual_seed(1);
    model = torch::nn::Sequential(torch::nn::Linear(4, 4),
                                  torch::nn::Linear(4, size));
    for (const auto& child : model->children()) fully_shard(child);
    fully_shard(model);
  }
  torch::Tensor Layer(size_t i) {
    return model->children()[i]->as<torch::nn::Linear>()->forward(x);
  }
  torch::nn::Sequential model{nullptr};
  torch::Tensor x = torch::ones({1, 4});
};

TEST(DebugMode, IsOffByDefault) {
  EXPECT_FALSE(debug_mode());
  set_debug_mode(true);
  EXPECT_TRUE(debug_mode());
  set_debug_mode(false);
  EXPECT_FALSE(debug_mode());
}

TEST(DebugMode, TheEnvironmentSwitchesItOn) {
  RunRanks(
      1, [] { EXPECT_TRUE(debug_mode()); }, kDebug);
  RunRanks(1, [] { EXPECT_FALSE(debug_mode()); },
           {.environment = {{"TESSERA_FSDP_DEBUG", "0"}}});
}

TEST(DebugMode, AcceptsStepsThatAgree) {
  RunRanks(
      2,
      [] {
        init_process_group();
        Net checked;
        set_debug_mode(false);
        Net plain;
        std::vector<std::string> counts;
        for (Net* net : {&checked, &plain}) {
          set_debug_mode(net == &checked);
          CountingBackend& backend =
              Count(parameters(*net->model)[0].device_mesh().get_group());
          backend.Reset();
          fsdp_modules(*net->model)[2].unshard(/*async=*/true).wait();
          for (int step = 0; step < 3; ++step) {
            net->model->forward(net->x).pow(2).sum().backward();
          }
          counts.push_back(backend.ToString());
        }
        EXPECT_EQ(counts[0], counts[1]);
        for (size_t i = 0; i < 4; ++i) {
          EXPECT_TRUE(parameters(*plain.model)[i].grad()->to_local().equal(
              parameters(*checked.model)[i].grad()->to_local()));
        }
      },
      kDebug);
}

TEST(OrderCheck, IsOnByDefault) {
  RunRanks(1, [] {
    EXPECT_TRUE(order_check());
    set_order_check(false);
    EXPECT_FALSE(order_check());
  });
  RunRanks(1, [] { EXPECT_FALSE(order_check()); },
           {.environment = {{"TESSERA_FSDP_ORDER_CHECK", "0"}}});
}

TEST(OrderCheck, NamesTheGroupsOfRanksThatDiverge) {
  // With the same size, which would give wrong numbers, and with different
  // sizes, which would fail inside Gloo.
  for (const int64_t size : {4, 9}) {
    RunRanks(2, [size] {
      init_process_group();
      Net net(size);
      EXPECT_THAT(
          ThrownMessage([&] { net.Layer(static_cast<size_t>(get_rank())); }),
          AllOf(HasSubstr("have diverged"),
                HasSubstr("rank 0 is at the all-gather of '0' for "
                          "aten::"),
                HasSubstr("rank 1 is at the all-gather of '1' for "
                          "aten::")));
    });
  }
}

TEST(OrderCheck, NamesACollectiveThatOthersDoNotMake) {
  RunRanks(2, [] {
    init_process_group();
    Net net;
    const auto group = parameters(*net.model)[0].device_mesh().get_group();
    const std::string error = ThrownMessage([&] {
      if (get_rank() == 0) CheckInStep(group, c10::kCPU, "barrier", "a test");
      net.Layer(0);
    });
    EXPECT_THAT(error, AllOf(HasSubstr("rank 0 is at the barrier for a test, "
                                       "collective 0"),
                             HasSubstr("rank 1 is at the all-gather of '0'")));
  });
}

TEST(OrderCheck, ChecksCollectivesOutsideGroups) {
  RunRanks(2, [] {
    init_process_group();
    Net net;
    const std::string error = ThrownMessage([&] {
      if (get_rank() == 0) parameters(*net.model)[0].full_tensor();
      net.Layer(0);
    });
    EXPECT_THAT(error,
                AllOf(HasSubstr("rank 0 is at the all-gather of 32 bytes for a "
                                "DTensor"),
                      HasSubstr("rank 1 is at the all-gather of '0'")));
  });
}

TEST(OrderCheck, ContinuesAfterADivergence) {
  RunRanks(3, [] {
    init_process_group();
    const ProcessGroup group = world_group();
    const std::string mine = get_rank() == 1 ? "b" : "a";
    // Rank 0 agrees with the previous rank, which is rank 2.
    const auto compare = [&] { CheckInStep(group, c10::kCPU, mine, "a test"); };
    if (get_rank() == 0) {
      compare();
    } else {
      EXPECT_THAT(ThrownMessage(compare),
                  HasSubstr(get_rank() == 1 ? "rank 0 is at the a"
                                            : "rank 1 is at the b"));
    }
    CheckInStep(group, c10::kCPU, "c", "a test");
  });
}

// ---- Collectives on a device with streams ----------------------------------

// As before a collective on a GPU, which this process does not make.
void CheckOnDevice(const ProcessGroup& group, const std::string& collective) {
  CheckInStep(group, c10::kCUDA, collective, "a test");
}

// Makes both calls and returns the error; one of them fails. The first one
// fails if the neighbour's message has arrived by then.
std::string ErrorOfEither(const std::function<void()>& first,
                          const std::function<void()>& second) {
  bool first_is_done = false;
  const std::string error = ThrownMessage([&] {
    first();
    first_is_done = true;
    second();
  });
  if (!first_is_done) second();
  return error;
}

TEST(OrderCheck, DeviceRanksDoNotWaitForNeighbours) {
  RunRanks(2, [] {
    init_process_group();
    const ProcessGroup group = world_group();
    for (const int64_t first : {0, 1}) {
      // The other rank comes when this one is done.
      if (get_rank() != first) WaitForAllRanks();
      for (size_t i = 0; i < kMaxUnread; ++i) CheckOnDevice(group, "a");
      if (get_rank() == first) WaitForAllRanks();
      FinishOrderCheck();
    }
  });
}

TEST(OrderCheck, DeviceRanksFindADivergenceAfterBackward) {
  RunRanks(2, [] {
    init_process_group();
    // No other call looks at this group's messages.
    const ProcessGroup group = new_group({0, 1}, "other");
    Net net;
    const auto step = [&] {
      net.model->forward(net.x).pow(2).sum().backward();
    };
    EXPECT_THAT(
        ErrorOfEither(
            [&] { CheckOnDevice(group, get_rank() == 0 ? "a" : "b"); }, step),
        AllOf(HasSubstr("in group \"other\" and its neighbour have diverged"),
              HasSubstr("rank 0 is at the a for a test, collective 0"),
              HasSubstr("rank 1 is at the b for a test, collective 0"),
              HasSubstr("Every rank must make the same calls")));
    CheckOnDevice(group, "a");
    step();
  });
}

TEST(OrderCheck, DeviceRanksFindAnArrivedDivergenceAtTheNextCollective) {
  RunRanks(2, [] {
    init_process_group();
    const ProcessGroup group = world_group();
    EXPECT_THAT(ThrownMessage([&] {
                  CheckOnDevice(group, get_rank() == 0 ? "a" : "b");
                  for (;;) CheckOnDevice(group, "c");
                }),
                AllOf(HasSubstr("rank 0 is at the a for a test"),
                      HasSubstr("rank 1 is at the b for a test")));
    WaitForAllRanks();
  });
}

TEST(OrderCheck, DeviceRanksAreAheadByALimitedCount) {
  RunRanks(2, [] {
    init_process_group();
    const ProcessGroup group = world_group();
    if (get_rank() == 0) {
      for (size_t i = 0; i < kMaxUnread; ++i) CheckOnDevice(group, "a");
      group->getBackend(c10::kCPU)->setTimeout(std::chrono::seconds(1));
      EXPECT_THAT(ThrownMessage([&] { CheckOnDevice(group, "a"); }),
                  AllOf(HasSubstr("rank 0 of 2 in group \"world\""),
                        HasSubstr("a for a test (waiting for rank 1)"),
                        HasSubstr("Timed out")));
    }
    WaitForAllRanks();
  });
}

TEST(OrderCheck, CpuCollectivesFirstReadADevicesMessages) {
  RunRanks(2, [] {
    init_process_group();
    const ProcessGroup group = world_group();
    EXPECT_THAT(ErrorOfEither(
                    [&] { CheckOnDevice(group, get_rank() == 0 ? "a" : "b"); },
                    [&] { CheckInStep(group, c10::kCPU, "c", "a test"); }),
                HasSubstr("rank 0 is at the a for a test, collective 0"));
    CheckInStep(group, c10::kCPU, "d", "a test");
  });
}

// A group in which each rank uses another parameter.
struct PairImpl : torch::nn::Module {
  torch::nn::Linear a = register_module(
      "a", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)));
  torch::nn::Linear b = register_module(
      "b", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)));
};
TORCH_MODULE(Pair);

void ExpectMissingGradientsAreNamed() {
  init_process_group();
  Pair pair;
  FSDPModule root = fully_shard(pair);
  const auto train = [&] {
    const torch::Tensor x = torch::ones({1, 4});
    (get_rank() == 0 ? pair->a(x) : pair->b(x)).sum().backward();
  };
  EXPECT_THAT(
      ThrownMessage(train),
      AllOf(HasSubstr("rank 0 is at the reduce-scatter of the root without "
                      "gradients of 'b.weight' for backward"),
            HasSubstr("rank 1 is at the reduce-scatter of the root without "
                      "gradients of 'a.weight' for backward"),
            HasSubstr("set_reduce_scatter_unused_params(true)")));
  // The advice in the message works.
  root.set_reduce_scatter_unused_params(true);
  train();
  EXPECT_TRUE(parameters(*pair)[1].grad()->full_tensor().equal(
      torch::full({4, 4}, 0.5)));
}

TEST(OrderCheck, NamesTheParameterWithoutAGradient) {
  RunRanks(2, ExpectMissingGradientsAreNamed);
}

TEST(DebugMode, NamesTheParameterWithoutAGradient) {
  RunRanks(2, ExpectMissingGradientsAreNamed, kDebug);
}

TEST(DebugMode, NamesReplicasThatBeginDifferently) {
  RunRanks(
      4,
      [] {
        init_process_group();
        const DeviceMesh mesh =
            init_device_mesh("cpu", {2, 2}, {"replicate", "shard"});
        for (const bool differ : {false, true}) {
          torch::manual_seed(differ ? get_rank() / 2 : 0);
          torch::nn::Sequential model(torch::nn::Linear(4, 4));
          fully_shard(model, {.mesh = mesh});
          const auto forward = [&] { model->forward(torch::ones({1, 4})); };
          if (!differ) {
            forward();
            continue;
          }
          EXPECT_THAT(
              ThrownMessage(forward),
              AllOf(HasSubstr("the first use of the root: its shards must be "
                              "equal on these replicas"),
                    HasSubstr("fsdp::broadcast_module"),
                    HasSubstr("with contents '0.weight' ")));
        }
      },
      kDebug);
}

TEST(DebugMode, NamesTheGroupsOfRanksThatDiverge) {
  RunRanks(
      2,
      [] {
        init_process_group();
        Net net;
        EXPECT_THAT(
            ThrownMessage([&] { net.Layer(static_cast<size_t>(get_rank())); }),
            AllOf(HasSubstr("have diverged"),
                  HasSubstr("rank 0 is at the all-gather of '0' for aten::"),
                  HasSubstr("rank 1 is at the all-gather of '1' for aten::")));
      },
      kDebug);
}

TEST(DebugMode, NamesTheRankThatContinued) {
  RunRanks(
      2,
      [] {
        init_process_group();
        Net net;
        const torch::Tensor loss = net.Layer(0).sum();
        // Rank 1 forgets the backward.
        const std::string error = get_rank() == 0
                                      ? ThrownMessage([&] { loss.backward(); })
                                      : ThrownMessage([&] { net.Layer(1); });
        EXPECT_THAT(
            error,
            AllOf(HasSubstr("rank 0 is at the reduce-scatter of '0' for "
                            "backward"),
                  HasSubstr("rank 1 is at the all-gather of '1' for aten::")));
      },
      kDebug);
}

TEST(DebugMode, ChecksTheUsersGathers) {
  RunRanks(
      2,
      [] {
        init_process_group();
        Net net;
        const std::string error = ThrownMessage([&] {
          if (get_rank() == 0) fsdp_modules(*net.model)[2].unshard();
          net.Layer(0);
        });
        EXPECT_THAT(
            error,
            AllOf(HasSubstr("rank 0 is at the all-gather of '1' for unshard"),
                  HasSubstr("rank 1 is at the all-gather of '0' for aten::")));
      },
      kDebug);
}

TEST(DebugMode, NamesTheRankThatNeverCame) {
  RunRanks(
      2,
      [] {
        init_process_group();
        Net net;
        if (get_rank() == 0) {
          job_store()->setTimeout(std::chrono::seconds(2));
          EXPECT_THAT(ThrownMessage([&] { net.Layer(1); }),
                      AllOf(HasSubstr("the all-gather of '1' for aten::"),
                            HasSubstr("never came: rank 1")));
        }
        WaitForAllRanks();
      },
      kDebug);
}

}  // namespace
}  // namespace fsdp::testing
