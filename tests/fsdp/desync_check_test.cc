// Debug mode: ranks that diverge hear of it, by name, instead of hanging.

#include "fsdp/desync_check.h"

#include <chrono>
#include <string>
#include <vector>

#include "fsdp/fsdp_state.h"
#include "fsdp/fully_shard.h"
#include "fsdp/process_group.h"
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

// Two layers, each a group, and a root of none.
struct Net {
  Net() {
    at::set_num_threads(1);
    torch::manual_seed(1);
    model =
        torch::nn::Sequential(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
    for (const auto& child : model->children()) fully_shard(child);
    fully_shard(model);
  }
  torch::Tensor Layer(size_t i) {
    return model->children()[i]->as<torch::nn::Linear>()->forward(x);
  }
  torch::nn::Sequential model{nullptr};
  torch::Tensor x = torch::ones({1, 4});
};

TEST(DebugMode, IsOffUnlessAskedFor) {
  EXPECT_FALSE(debug_mode());
  set_debug_mode(true);
  EXPECT_TRUE(debug_mode());
  set_debug_mode(false);
  EXPECT_FALSE(debug_mode());
}

TEST(DebugMode, IsOnByTheEnvironment) {
  RunRanks(
      1, [] { EXPECT_TRUE(debug_mode()); }, kDebug);
  RunRanks(1, [] { EXPECT_FALSE(debug_mode()); },
           {.environment = {{"TESSERA_FSDP_DEBUG", "0"}}});
}

TEST(DebugMode, LeavesStepsThatAgreeAlone) {
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

TEST(DebugMode, NamesTheGroupsOfRanksThatDiverge) {
  RunRanks(
      2,
      [] {
        init_process_group();
        Net net;
        EXPECT_THAT(
            ErrorOf([&] { net.Layer(static_cast<size_t>(get_rank())); }),
            AllOf(HasSubstr("have diverged"),
                  HasSubstr("rank 0 is at the all-gather of '0' for aten::"),
                  HasSubstr("rank 1 is at the all-gather of '1' for aten::")));
      },
      kDebug);
}

TEST(DebugMode, NamesTheRankThatWentOn) {
  RunRanks(
      2,
      [] {
        init_process_group();
        Net net;
        const torch::Tensor loss = net.Layer(0).sum();
        // Rank 1 forgets its backward.
        const std::string error = get_rank() == 0
                                      ? ErrorOf([&] { loss.backward(); })
                                      : ErrorOf([&] { net.Layer(1); });
        EXPECT_THAT(
            error,
            AllOf(HasSubstr("rank 0 is at the reduce-scatter of '0' for "
                            "backward"),
                  HasSubstr("rank 1 is at the all-gather of '1' for aten::")));
      },
      kDebug);
}

TEST(DebugMode, SeesWhatTheUserGathers) {
  RunRanks(
      2,
      [] {
        init_process_group();
        Net net;
        const std::string error = ErrorOf([&] {
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
        init_process_group({.timeout = std::chrono::seconds(2)});
        Net net;
        if (get_rank() == 0) {
          EXPECT_THAT(ErrorOf([&] { net.Layer(1); }),
                      AllOf(HasSubstr("the all-gather of '1' for aten::"),
                            HasSubstr("never came: rank 1")));
        }
        WaitForAllRanks();
      },
      kDebug);
}

}  // namespace
}  // namespace fsdp::testing
