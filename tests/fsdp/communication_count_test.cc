// SPDX-License-Identifier: Apache-2.0
// Counts a step's collectives for every choice of reshard_after_forward, as
// PyTorch's tests do.

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "gtest/gtest.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"

namespace fsdp::testing {
namespace {

struct Counted {
  std::string forward;
  std::string backward;
  std::string small;  // in the groups of an int reshard_after_forward
};

// One step of a model of `num_blocks`; the second of two, which must make the
// calls that the first made.
Counted CountStep(int64_t num_blocks, const ReshardAfterForward& reshard,
                  bool boundary, const DeviceMesh& mesh) {
  torch::manual_seed(5);
  TinyModel model(TinyModelOptions{.num_blocks = num_blocks});
  const FullyShardOptions options = {.mesh = mesh,
                                     .reshard_after_forward = reshard};
  for (const auto& block : *model->blocks) fully_shard(block, options);
  const FSDPModule root = fully_shard(model, options);
  const auto config = [](const FSDPModule& module) {
    return module.state()->group()->config();
  };
  CountingBackend& counts = Count(config(root).shard_group);
  std::vector<CountingBackend*> small;
  for (const FSDPModule& module : fsdp_modules(*model)) {
    const ProcessGroup group = config(module).post_forward_group;
    if (group) small.push_back(&Count(group));
  }
  const torch::Tensor tokens = TinyBatch(get_rank()).narrow(1, 0, 7);
  Counted first, second;
  for (Counted* counted : {&first, &second}) {
    const auto take = [&counts] {
      std::string text = counts.ToString();
      counts.Reset();
      return text;
    };
    take();
    const torch::Tensor out =
        boundary ? fsdp::forward(model, tokens) : model->forward(tokens);
    counted->forward = take();
    out.sum().backward();
    counted->backward = take();
    for (CountingBackend* each : small) {
      counted->small += each->ToString() + ";";
      each->Reset();
    }
  }
  EXPECT_EQ(first.forward, second.forward);
  EXPECT_EQ(first.backward, second.backward);
  EXPECT_EQ(first.small, second.small);
  return second;
}

std::string Counts(int64_t gathers, int64_t reduces) {
  std::string text;
  if (gathers > 0) text = "all_gather " + std::to_string(gathers);
  if (gathers > 0 && reduces > 0) text += ", ";
  if (reduces > 0) text += "reduce_scatter " + std::to_string(reduces);
  return text;
}

TEST(CommunicationCount, FollowsReshardAfterForward) {
  RunRanks(4, [] {
    at::set_num_threads(1);
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {4}, {"shard"});
    for (const int64_t blocks : {1, 3}) {
      const auto backward = [&](const ReshardAfterForward& reshard,
                                bool boundary) {
        const Counted counted = CountStep(blocks, reshard, boundary, mesh);
        EXPECT_EQ(counted.forward, Counts(blocks + 1, 0));
        EXPECT_EQ(counted.small, "");
        return counted.backward;
      };
      EXPECT_EQ(backward({}, true), Counts(blocks, blocks + 1));
      EXPECT_EQ(backward({}, false), Counts(blocks, blocks + 1));
      EXPECT_EQ(backward(false, true), Counts(0, blocks + 1));
      EXPECT_EQ(backward(false, false), Counts(0, blocks + 1));
      EXPECT_EQ(backward(true, true), Counts(blocks + 1, blocks + 1));
      // In an ordinary call nothing shows where the root's forward ends, so it
      // stays unsharded.
      EXPECT_EQ(backward(true, false), Counts(blocks, blocks + 1));
    }
  });
}

TEST(CommunicationCount, OfFewerRanksIsThatOfTheSmallerGroups) {
  RunRanks(4, [] {
    at::set_num_threads(1);
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {4}, {"shard"});
    const Counted counted = CountStep(3, 2, /*boundary=*/true, mesh);
    EXPECT_EQ(counted.forward, Counts(4, 0));
    EXPECT_EQ(counted.backward, Counts(0, 4));
    EXPECT_EQ(counted.small,
              "all_gather 1;all_gather 1;all_gather 1;all_gather 1;");
    const Counted lazy = CountStep(3, 2, /*boundary=*/false, mesh);
    EXPECT_EQ(lazy.backward, Counts(0, 4));
    EXPECT_EQ(lazy.small, ";all_gather 1;all_gather 1;all_gather 1;");
  });
}

TEST(CommunicationCount, HybridAddsOneAllReduceForEachGroup) {
  RunRanks(4, [] {
    at::set_num_threads(1);
    init_process_group();
    const DeviceMesh mesh =
        init_device_mesh("cpu", {2, 2}, {"replicate", "shard"});
    CountingBackend& replicas = Count(mesh.get_group("replicate"));
    const Counted counted = CountStep(2, true, /*boundary=*/true, mesh);
    EXPECT_EQ(counted.forward, Counts(3, 0));
    EXPECT_EQ(counted.backward, Counts(3, 3));
    EXPECT_EQ(replicas.ToString(), "all_reduce 6");  // two steps
  });
}

TEST(CommunicationCount, OneRankMakesNone) {
  if (!is_initialized()) init_process_group();
  CountingBackend& world = Count(world_group());
  const DeviceMesh mesh = init_device_mesh("cpu", {1});
  CountingBackend& shards = Count(mesh.get_group());
  const Counted counted = CountStep(2, true, /*boundary=*/true, mesh);
  EXPECT_EQ(counted.forward + counted.backward, "");
  EXPECT_EQ(world.ToString() + shards.ToString(), "");
}

}  // namespace
}  // namespace fsdp::testing
