// SPDX-License-Identifier: Apache-2.0
// The simulated device against the CPU, and races that are there or not.
#include "tests/testing/sim_device/sim_device.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "ATen/Parallel.h"
#include "c10/core/Event.h"
#include "c10/core/StreamGuard.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/optim/adamw.h"
#include "torch/types.h"
#include "torch/utils.h"

namespace sim {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

const torch::Device kCuda("cuda:0");

c10::Stream Current() {
  return c10::impl::getDeviceGuardImpl(c10::kCUDA)->getStream(kCuda);
}

class SimDevice : public ::testing::Test {
 protected:
  SimDevice() {
    at::set_num_threads(1);
    // All work from other tests is ordered before this test.
    c10::impl::getDeviceGuardImpl(c10::kCUDA)->synchronizeDevice(0);
    TakeRaces();
    TakeHostWaits();
    TakeEagerOperators();
  }
};

TEST_F(SimDevice, ComputesAsTheCpu) {
  const torch::Tensor a = torch::linspace(-1, 1, 12).view({3, 4});
  const torch::Tensor b = a.to(kCuda);
  EXPECT_TRUE(b.is_cuda());
  EXPECT_TRUE(b.cpu().equal(a));
  EXPECT_TRUE((b.matmul(b.t()).softmax(-1) * 2 + 1)
                  .sum(0)
                  .cpu()
                  .equal((a.matmul(a.t()).softmax(-1) * 2 + 1).sum(0)));
  const torch::Tensor columns = torch::tensor({0, 5});
  EXPECT_TRUE(torch::cat({b, b}, 1)
                  .index_select(1, columns.to(kCuda))
                  .cpu()
                  .equal(torch::cat({a, a}, 1).index_select(1, columns)));
  EXPECT_EQ(b.nonzero().sizes(), a.nonzero().sizes());
  EXPECT_TRUE(std::get<0>(b.max(1)).cpu().equal(std::get<0>(a.max(1))));
  EXPECT_THAT(TakeRaces(), IsEmpty());
}

TEST_F(SimDevice, RandomNumbersRepeat) {
  torch::manual_seed(5);
  const torch::Tensor first = torch::randn({8}, kCuda);
  torch::manual_seed(5);
  EXPECT_TRUE(torch::randn({8}, kCuda).cpu().equal(first.cpu()));
  EXPECT_FALSE(torch::randn({8}, kCuda).cpu().equal(first.cpu()));
}

// Norms, attention, an embedding, and an optimizer with fused kernels.
struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor h = embed(x);
    const torch::Tensor n = norm(h);
    const torch::Tensor q = n.unsqueeze(1);
    h = h + at::scaled_dot_product_attention(q, q, q, {}, 0.0, true).squeeze(1);
    return head(h + down(torch::gelu(up(n))));
  }
  torch::nn::Embedding embed{
      register_module("embed", torch::nn::Embedding(32, 16))};
  torch::nn::LayerNorm norm{register_module(
      "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})))};
  torch::nn::Linear up{register_module("up", torch::nn::Linear(16, 64))};
  torch::nn::Linear down{register_module("down", torch::nn::Linear(64, 16))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(16, 32))};
};
TORCH_MODULE(Net);

std::vector<double> TrainingLosses(torch::Device device) {
  torch::manual_seed(3);
  Net net;
  net->to(device);
  torch::optim::AdamW optimizer(net->parameters(),
                                torch::optim::AdamWOptions(1e-2));
  torch::manual_seed(4);
  const torch::Tensor x = torch::randint(32, {4, 8}, torch::kLong).to(device);
  const torch::Tensor y = torch::randint(32, {32}, torch::kLong).to(device);
  TakeHostWaits();
  std::vector<torch::Tensor> losses;
  for (int step = 0; step < 8; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss =
        torch::nn::functional::cross_entropy(net(x).flatten(0, 1), y);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.detach());
  }
  EXPECT_THAT(TakeHostWaits(), IsEmpty());
  std::vector<double> values;
  for (const torch::Tensor& loss : losses) {
    values.push_back(loss.item<double>());
  }
  return values;
}

TEST_F(SimDevice, AModelTrainsAsOnTheCpuAndTheHostDoesNotWait) {
  const std::vector<double> want = TrainingLosses(torch::kCPU);
  const std::vector<double> got = TrainingLosses(kCuda);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 1e-6) << i;
  }
  EXPECT_THAT(TakeRaces(), IsEmpty());
  EXPECT_THAT(TakeEagerOperators(), IsEmpty());
}

TEST_F(SimDevice, AMissingWaitIsARace) {
  const c10::Stream side = NewStream();
  NameStream(side, "side");
  const torch::Tensor x = torch::ones({1024}, kCuda);
  {
    const c10::StreamGuard guard(side);
    x.add_(1);
  }
  EXPECT_THAT(TakeRaces(),
              ElementsAre("aten::add on stream 'side' reads bytes 0 to 4096 of "
                          "an allocation of 4096, which aten::fill_ on stream "
                          "'default' writes, and nothing orders the two"));
}

TEST_F(SimDevice, WaitsMakeAnOrder) {
  const c10::Stream side = NewStream();
  const torch::Tensor x = torch::ones({1024}, kCuda);
  WaitFor(side, Current());
  {
    const c10::StreamGuard guard(side);
    x.add_(1);
  }
  WaitFor(Current(), side);
  EXPECT_EQ(x.sum().item<float>(), 2048);
  EXPECT_THAT(TakeRaces(), IsEmpty());
}

TEST_F(SimDevice, TwoReadersNeedNoOrder) {
  const c10::Stream side = NewStream();
  const torch::Tensor x = torch::ones({1024}, kCuda);
  WaitFor(side, Current());
  {
    const c10::StreamGuard guard(side);
    x.sum();
  }
  x.sum();
  EXPECT_THAT(TakeRaces(), IsEmpty());
}

TEST_F(SimDevice, ColumnsOfOneMatrixNeedNoOrder) {
  const c10::Stream side = NewStream();
  const torch::Tensor x = torch::ones({64, 8}, kCuda);
  WaitFor(side, Current());
  {
    const c10::StreamGuard guard(side);
    x.narrow(1, 0, 4).add_(1);
  }
  x.narrow(1, 4, 4).add_(1);
  EXPECT_THAT(TakeRaces(), IsEmpty());
  x.narrow(1, 3, 2).add_(1);
  EXPECT_THAT(TakeRaces(), ::testing::SizeIs(1));
}

TEST_F(SimDevice, MemoryThatIsFreedTooEarlyIsARace) {
  const c10::Stream side = NewStream();
  NameStream(side, "side");
  {
    const torch::Tensor x = torch::ones({4096}, kCuda);
    WaitFor(side, Current());
    const c10::StreamGuard guard(side);
    x * 2;
  }
  // Another size: it may or may not get this memory.
  const torch::Tensor y = torch::zeros({8}, kCuda);
  EXPECT_THAT(TakeRaces(),
              ElementsAre(HasSubstr("aten::mul on stream 'side' reads")));
}

TEST_F(SimDevice, RecordStreamKeepsMemory) {
  const c10::Stream side = NewStream();
  {
    const torch::Tensor x = torch::ones({4096}, kCuda);
    WaitFor(side, Current());
    x.record_stream(side);
    const c10::StreamGuard guard(side);
    x * 2;
  }
  for (int i = 0; i < 8; ++i) torch::zeros({4096}, kCuda);
  EXPECT_THAT(TakeRaces(), IsEmpty());
}

TEST_F(SimDevice, PinnedMemoryIsPoisonUntilTheCopyIsDone) {
  options().max_delay_us = 20000;
  const torch::Tensor pinned =
      torch::empty({1 << 16}, torch::TensorOptions().pinned_memory(true));
  EXPECT_TRUE(pinned.is_pinned());
  const torch::Tensor x = torch::ones({1 << 16}, kCuda);
  for (int i = 0; i < 8; ++i) x.mul_(1);
  pinned.copy_(x, /*non_blocking=*/true);
  EXPECT_TRUE(std::isnan(pinned[5].item<float>()));
  Finish();
  EXPECT_EQ(pinned[5].item<float>(), 1);
  options().max_delay_us = 0;
}

TEST_F(SimDevice, WaitsOfTheHostAreCounted) {
  const torch::Tensor x = torch::ones({4}, kCuda);
  (void)x.sum().item<float>();
  (void)x.cpu();
  (void)x.nonzero();
  torch::ones({4}).to(kCuda);
  EXPECT_THAT(TakeHostWaits(), UnorderedElementsAre(Pair("aten::item", 1),
                                                    Pair("copy to host", 1),
                                                    Pair("aten::nonzero", 1),
                                                    Pair("copy from host", 1)));
}

TEST_F(SimDevice, PeakMemoryIsTheSameEachTime) {
  const auto peak = [] {
    ResetPeakMemory();
    torch::Tensor x = torch::ones({1 << 10}, kCuda);
    for (int i = 0; i < 4; ++i) x = torch::cat({x, x});
    return memory_stats().peak;
  };
  const int64_t first = peak();
  EXPECT_EQ(first, memory_stats().allocated + 4096 * 24);
  EXPECT_EQ(peak(), first);
}

TEST_F(SimDevice, ExceedingTheMemoryIsAnError) {
  options().memory_mb = 64;
  EXPECT_THROW(torch::empty({int64_t{128} << 20}, kCuda),
               c10::OutOfMemoryError);
  // Cached memory is given back first.
  for (int i = 1; i < 40; i += 3) {
    torch::empty({int64_t{i} << 20},
                 torch::TensorOptions(torch::kByte).device(kCuda));
  }
  options().memory_mb = 0;
}

TEST_F(SimDevice, DevicesOfOneProcessExchangeMemory) {
  const torch::Tensor here = torch::ones({8}, kCuda);
  const torch::Tensor there = here.to(torch::Device("cuda:1"));
  EXPECT_EQ(there.device().index(), 1);
  EXPECT_EQ((there + there).to(kCuda).sum().item<float>(), 16);
  EXPECT_THAT(TakeRaces(), IsEmpty());
  EXPECT_THROW(here + there, c10::Error);
}

TEST_F(SimDevice, ALaterWaitReportsAKernelsError) {
  const torch::Tensor x = torch::ones({4}, kCuda);
  const torch::Tensor y = x.index_select(
      0, torch::full({1}, 9, torch::TensorOptions(torch::kLong).device(kCuda)));
  EXPECT_THROW(y.cpu(), c10::Error);
}

TEST(SimNccl, CollectivesAddUp) {
  fsdp::testing::RunRanks(2, [] {
    at::set_num_threads(1);
    fsdp::init_process_group();
    const c10::Device device(c10::kCUDA,
                             static_cast<c10::DeviceIndex>(fsdp::get_rank()));
    const auto nccl = fsdp::world_group()->getBackend(c10::kCUDA);
    EXPECT_EQ(nccl->getBackendName(), "nccl");
    std::vector<at::Tensor> one{
        torch::full({4}, fsdp::get_rank() + 1.0, device)};
    nccl->allreduce(one)->wait();
    EXPECT_EQ(one[0].sum().item<float>(), 12);
    EXPECT_THAT(TakeRaces(), IsEmpty());
  });
}

TEST(SimNccl, AReadWithoutAWaitIsARace) {
  fsdp::testing::RunRanks(2, [] {
    fsdp::init_process_group();
    const c10::Device device(c10::kCUDA,
                             static_cast<c10::DeviceIndex>(fsdp::get_rank()));
    const auto nccl = fsdp::world_group()->getBackend(c10::kCUDA);
    std::vector<at::Tensor> one{torch::ones({4}, device)};
    const auto work = nccl->allreduce(one);
    const torch::Tensor early = one[0] + 1;
    work->wait();
    EXPECT_THAT(TakeRaces(), Contains(HasSubstr("nccl all-reduce")));
  });
}

TEST(SimNccl, ACommunicatorThatNotAllRanksUseIsNamed) {
  const std::vector<std::string> failures = fsdp::testing::RankFailures(
      2,
      [] {
        fsdp::init_process_group();
        const auto nccl = fsdp::world_group()->getBackend(c10::kCUDA);
        if (fsdp::get_rank() == 0) {
          std::vector<at::Tensor> one{torch::ones({4}, kCuda)};
          nccl->allreduce(one);
        }
        fsdp::testing::WaitForAllRanks();
      },
      {.environment = {{"SIM_WATCHDOG_S", "2"}}});
  EXPECT_THAT(failures, Contains(HasSubstr("waits for rank 1, which did not "
                                           "come")));
}

TEST(SimNccl, AHangPrintsTheWorkOfEachStream) {
  const std::vector<std::string> failures = fsdp::testing::RankFailures(
      2,
      [] {
        fsdp::init_process_group();
        const c10::Device device(
            c10::kCUDA, static_cast<c10::DeviceIndex>(fsdp::get_rank()));
        const auto nccl = fsdp::world_group()->getBackend(c10::kCUDA);
        // Both send first.
        std::vector<at::Tensor> one{torch::ones({4}, device)};
        std::vector<at::Tensor> other{torch::ones({4}, device)};
        const int peer = static_cast<int>(1 - fsdp::get_rank());
        nccl->send(one, peer, 0);
        nccl->recv(other, peer, 0)->wait();
        (void)other[0].cpu();
      },
      {.environment = {{"SIM_WATCHDOG_S", "2"}}});
  EXPECT_THAT(failures, ::testing::Not(IsEmpty()));
}

}  // namespace
}  // namespace sim
