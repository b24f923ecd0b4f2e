// SPDX-License-Identifier: Apache-2.0
// The host may see only one device, and may run ahead.
#include <cmath>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "gtest/gtest.h"
#include "tests/fsdp/sim/training.h"
#include "tests/testing/ranks.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

// As `srun --gpus-per-task=1` starts ranks.
TEST(SimHost, EachRankMaySeeOnlyOneDevice) {
  RunRanks(
      2, [] { ExpectTrainsAsOnTheCpu({.name = "OneDevice"}); },
      {.environment = {{"SIM_DEVICES", "1"}, {"CUDA_VISIBLE_DEVICES", "0"}}});
}

// The check of collective order must not keep the hosts in step.
TEST(SimHost, ARankIssuesAForwardBeforeItsNeighbourBegins) {
  RunRanks(2, [] {
    init_process_group();
    Net net;
    const FullyShardOptions options{.mesh = init_device_mesh("cuda", {2})};
    for (torch::nn::Sequential& block : net->blocks) {
      fully_shard(block, options);
    }
    fully_shard(net, options);
    const torch::Tensor x =
        torch::ones({4, NetImpl::kIn}, options.mesh->device());
    // A communicator's first use waits for all ranks.
    net->forward(x).sum().backward();
    if (get_rank() == 1) WaitForAllRanks();
    const torch::Tensor loss = net->forward(x).sum();
    if (get_rank() == 0) WaitForAllRanks();
    loss.backward();
    EXPECT_TRUE(std::isfinite(loss.item<double>()));
  });
}

}  // namespace
}  // namespace fsdp::testing
