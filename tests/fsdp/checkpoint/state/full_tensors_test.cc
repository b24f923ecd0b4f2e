// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/full_tensors.h"

#include <vector>

#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/types.h"

namespace fsdp {
namespace {

using ::fsdp::testing::RunRanks;

TEST(FullTensors, GathersDTensorsAnywhereInTheState) {
  RunRanks(3, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh(c10::kCPU, {3}, {"s"});
    const torch::Tensor whole = torch::arange(14).view({7, 2});
    const DTensor sharded = distribute_tensor(whole, mesh, {Shard(0)});
    const torch::Tensor plain = torch::ones({2});
    const StateDict state = {
        {"list", StateList{sharded, 1, StateDict({{"in", sharded}})}},
        {"plain", plain},
        {"text", "x"}};

    StateDict full = state;
    ASSERT_OK(MakeFullTensors({.full = true}, full));
    const auto& list = *full.find("list")->get_if<StateList>();
    EXPECT_TRUE(torch::equal(*list[0].get_if<at::Tensor>(), whole));
    EXPECT_TRUE(torch::equal(
        *list[2].get_if<StateDict>()->find("in")->get_if<at::Tensor>(), whole));
    EXPECT_TRUE(full.find("plain")->get_if<at::Tensor>()->is_alias_of(plain));
    EXPECT_EQ(*full.find("text")->get_if<std::string>(), "x");

    StateDict offloaded = state;
    ASSERT_OK(MakeFullTensors({.to_cpu = true}, offloaded));
    EXPECT_FALSE(
        offloaded.find("plain")->get_if<at::Tensor>()->is_alias_of(plain));
    const auto* local =
        offloaded.find("list")->get_if<StateList>()->front().get_if<DTensor>();
    ASSERT_NE(local, nullptr);
    EXPECT_TRUE(torch::equal(local->to_local(), sharded.to_local()));
    EXPECT_FALSE(local->to_local().is_alias_of(sharded.to_local()));

    StateDict rank0 = state;
    const bool keep = get_rank() == 0;
    ASSERT_OK(
        MakeFullTensors({.full = true, .to_cpu = true, .keep = keep}, rank0));
    EXPECT_EQ(rank0.size(), keep ? 3u : 0u);
  });
}

}  // namespace
}  // namespace fsdp
