// SPDX-License-Identifier: Apache-2.0
// Tests FSDPModule: the groups that forward and backward gather ahead.

#include <memory>
#include <string>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/report.h"
#include "gtest/gtest.h"
#include "tests/fsdp/sharded_tower.h"
#include "tests/testing/ranks.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ModulePtr = std::shared_ptr<torch::nn::Module>;

TEST(SetIsLastBackward, KeepsTheOrderForTheNext) {
  RunRanks(2, [] {
    InitRank();
    const auto prefetched_in_second = [](bool first_is_last) {
      Sharded s = ShardTower();
      const torch::Tensor x = InputOf(get_rank());
      const torch::Tensor first = LossOf(s.tower, x);
      const torch::Tensor second = LossOf(s.tower, x);
      s.root.set_is_last_backward(first_is_last);
      first.backward();
      s.root.set_is_last_backward(true);
      reset_step_report(*s.tower);
      second.backward();
      ExpectGradients(s.tower, 1, {0, 1});
      return step_report(*s.tower).num_prefetched;
    };
    EXPECT_EQ(prefetched_in_second(true), 0);
    EXPECT_EQ(prefetched_in_second(false), 3);
  });
}

// Custom collectives that do the same as the default ones, and log it.
void LogCollectives(Sharded& s, Log* log) {
  std::vector<FSDPModule> modules = fsdp_modules(*s.tower);
  for (FSDPModule& module : modules) {
    const std::string name = module.is_root() ? "root" : module.name();
    module.set_custom_all_gather([log, name](at::Tensor output,
                                             at::Tensor input,
                                             c10d::ProcessGroup& group) {
      log->push_back("gather " + name);
      group.getBackend(c10::kCPU)->_allgather_base(output, input)->wait();
    });
    module.set_custom_reduce_scatter([log, name](at::Tensor output,
                                                 at::Tensor input,
                                                 c10d::ProcessGroup& group) {
      log->push_back("reduce " + name);
      c10d::ReduceScatterOptions options;
      options.reduceOp = c10d::ReduceOp::AVG;
      group.getBackend(c10::kCPU)
          ->_reduce_scatter_base(output, input, options)
          ->wait();
    });
  }
  s.tower->log = log;
}

const Log kDefaultForward = {"gather root", "gather 0", "forward 0", "gather 1",
                             "forward 1",   "gather 2", "forward 2"};
const Log kDefaultBackward = {
    "gather 2", "backward 2", "gather 1",   "reduce 2", "backward 1",
    "gather 0", "reduce 1",   "backward 0", "reduce 0", "reduce root"};

TEST(Prefetch, IsBackwardsByDefault) {
  RunRanks(2, [] {
    InitRank();
    Log log;
    Sharded s = ShardTower();
    LogCollectives(s, &log);
    for (int step = 0; step < 2; ++step) {
      log.clear();
      s.Forward();
      EXPECT_EQ(log, kDefaultForward);
      log.clear();
      s.Backward();
      EXPECT_EQ(log, kDefaultBackward);
    }
    ExpectGradients(s.tower, 1, {0, 1});
  });
}

TEST(Prefetch, ForwardListsAreGatheredInTheirOrder) {
  RunRanks(2, [] {
    InitRank();
    Log log;
    Sharded s = ShardTower();
    LogCollectives(s, &log);
    s.layers[0].set_modules_to_forward_prefetch({s.layers[1]});
    s.layers[1].set_modules_to_forward_prefetch({s.layers[2]});
    s.Forward();
    EXPECT_EQ(log, Log({"gather root", "gather 0", "gather 1", "forward 0",
                        "gather 2", "forward 1", "forward 2"}));
    log.clear();
    s.Backward();
    EXPECT_EQ(log, kDefaultBackward);
    s.layers[0].set_modules_to_forward_prefetch({s.layers[2], s.layers[1]});
    s.layers[1].set_modules_to_forward_prefetch({s.layers[2]});
    log.clear();
    s.Forward();
    EXPECT_EQ(log, Log({"gather root", "gather 0", "gather 2", "gather 1",
                        "forward 0", "forward 1", "forward 2"}));
    s.Backward();
    // The lists are removed again.
    for (FSDPModule& layer : s.layers)
      layer.set_modules_to_forward_prefetch({});
    log.clear();
    s.Forward();
    EXPECT_EQ(log, kDefaultForward);
    s.Backward();
    ExpectGradients(s.tower, 1.5, {0, 1});
  });
}

TEST(Prefetch, BackwardListsReplaceTheDefault) {
  RunRanks(2, [] {
    InitRank();
    Log log;
    Sharded s = ShardTower();
    LogCollectives(s, &log);
    s.root.set_modules_to_backward_prefetch({s.layers[2], s.layers[1]});
    s.layers[2].set_modules_to_backward_prefetch({s.layers[1], s.layers[0]});
    s.Forward();
    EXPECT_EQ(log, kDefaultForward);
    log.clear();
    s.Backward();
    EXPECT_EQ(log, Log({"gather 2", "gather 1", "backward 2", "gather 0",
                        "reduce 2", "backward 1", "reduce 1", "backward 0",
                        "reduce 0", "reduce root"}));
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

TEST(Prefetch, OfListedModulesIsThatOfTheirGroup) {
  RunRanks(2, [] {
    InitRank();
    Log log;
    Tower tower = MakeTower(4);
    std::vector<ModulePtr> middle{tower->layers[1].ptr(),
                                  tower->layers[2].ptr()};
    fully_shard(tower->layers[0]);
    const FSDPModule pair = fully_shard(middle);
    fully_shard(tower->layers[3]);
    const FSDPModule root = fully_shard(tower);
    EXPECT_EQ(pair.name(), "1, 2");
    Sharded s{tower, root, {}, nullptr, {}};
    LogCollectives(s, &log);
    s.Forward();
    EXPECT_EQ(log, Log({"gather root", "gather 0", "forward 0", "gather 1, 2",
                        "forward 1", "forward 2", "gather 3", "forward 3"}));
    log.clear();
    s.Backward();
    EXPECT_EQ(log, Log({"gather 3", "backward 3", "gather 1, 2", "reduce 3",
                        "backward 2", "gather 0", "backward 1", "reduce 1, 2",
                        "backward 0", "reduce 0", "reduce root"}));
  });
}

}  // namespace
}  // namespace fsdp::testing
