// SPDX-License-Identifier: Apache-2.0
// What FSDPModule's switches let a device do while a reduction takes long: a
// reduction is held up until the rest has been seen to be done.
#include <functional>
#include <future>
#include <optional>
#include <vector>

#include "c10/core/Event.h"
#include "fsdp/engine/fsdp_state.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/sim/training.h"
#include "tests/testing/ranks.h"
#include "tests/testing/sim_device/sim_device.h"
#include "tests/testing/sim_device/simulation.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

struct Held {
  Net net;
  FSDPModule root;
  std::vector<FSDPModule> blocks;
  c10::Device device;

  CommContext& comm() const { return root.state()->scheduler().comm(); }
};

Held ShardNet(const ReshardAfterForward& reshard,
              const std::function<void(FSDPModule&)>& prepare) {
  init_process_group();
  torch::manual_seed(7);
  Net net;
  const FullyShardOptions options{
      .mesh = init_device_mesh("cuda", {get_world_size()}),
      .reshard_after_forward = reshard};
  std::vector<FSDPModule> blocks;
  for (torch::nn::Sequential& block : net->blocks) {
    blocks.push_back(fully_shard(block, options));
  }
  FSDPModule root = fully_shard(net, options);
  prepare(root);
  Held held{.net = net,
            .root = root,
            .blocks = blocks,
            .device = options.mesh->device()};
  // A communicator's first use waits for all ranks.
  const torch::Tensor x = torch::ones({4, NetImpl::kIn}, held.device);
  net->forward(x).sum().backward();
  sim::Finish(held.device.index());
  return held;
}

// Holds up a stream until Open.
class Gate {
 public:
  explicit Gate(c10::Stream stream) {
    sim::Simulation::Get().Issue(
        stream, "a gate", {},
        [opened = opened_.get_future().share()] { opened.wait(); });
  }
  void Open() { opened_.set_value(); }

 private:
  std::promise<void> opened_;
};

// With one input only, the compute stream waits for the reduction that reads
// it.
TEST(SimSwitches, MoreInputsLetTheBackwardGoOn) {
  RunRanks(2, [] {
    Held held = ShardNet(/*reshard=*/false, [](FSDPModule& root) {
      root.set_reduce_scatter_max_input_buffers(4);
    });
    // Recorded by the last work of the backward.
    c10::Event computed(c10::kCUDA);
    torch::Tensor x =
        torch::ones({4, NetImpl::kIn}, held.device).requires_grad_();
    x.register_hook(
        [&](const torch::Tensor&) { computed.record(held.comm().current()); });
    const torch::Tensor loss = held.net->forward(x).sum();
    Gate gate(held.comm().reduce_scatter());
    loss.backward();
    computed.synchronize();
    gate.Open();
    sim::Finish(held.device.index());
    EXPECT_THAT(sim::TakeRaces(), ::testing::IsEmpty());
  });
}

// In one group, the collectives of a GPU run one after the other.
TEST(SimSwitches, GathersDoNotWaitForReductionsInTheirOwnGroup) {
  RunRanks(2, [] {
    Held held = ShardNet({}, [](FSDPModule& root) {
      root.set_separate_reduce_scatter_group(true);
    });
    const torch::Tensor x = torch::ones({4, NetImpl::kIn}, held.device);
    const torch::Tensor loss = held.net->forward(x).sum();
    Gate gate(held.comm().reduce_scatter());
    // Recorded after the last gather of the backward, of the first block, which
    // is issued after the last block's reduction.
    loss.backward();
    c10::Event gathered(c10::kCUDA);
    gathered.record(held.comm().all_gather());
    gathered.synchronize();
    gate.Open();
    sim::Finish(held.device.index());
    EXPECT_THAT(sim::TakeRaces(), ::testing::IsEmpty());
  });
}

// The compute stream waits for reductions at the handle's wait, not before.
TEST(SimSwitches, WorkGoesOnUntilAHandleIsAwaited) {
  RunRanks(2, [] {
    Held held = ShardNet(/*reshard=*/false, [](FSDPModule& root) {
      root.set_reduce_scatter_max_input_buffers(4);
    });
    held.root.set_manual_backward_finalization(true);
    const torch::Tensor x = torch::ones({4, NetImpl::kIn}, held.device);
    const torch::Tensor loss = held.net->forward(x).sum();
    Gate gate(held.comm().reduce_scatter());
    loss.backward();
    GradientReductionHandle handle =
        held.root.finalize_backward(/*async=*/true);
    const torch::Tensor y = x + x;
    c10::Event computed(c10::kCUDA);
    computed.record(held.comm().current());
    computed.synchronize();
    handle.wait();
    c10::Event reduced(c10::kCUDA);
    reduced.record(held.comm().current());
    EXPECT_FALSE(reduced.query());
    gate.Open();
    sim::Finish(held.device.index());
    EXPECT_THAT(sim::TakeRaces(), ::testing::IsEmpty());
  });
}

}  // namespace
}  // namespace fsdp::testing
