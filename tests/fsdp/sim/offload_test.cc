// SPDX-License-Identifier: Apache-2.0
// Offloaded tensors on the simulated device, with windows smaller than the
// saved tensors: copies in both directions, and memory that is freed in time.
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "ATen/Parallel.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "fsdp/module/offload_stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_device/sim_device.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using Parcel = OffloadStream::Parcel;
using ::testing::IsEmpty;

constexpr int kTensors = 8;
constexpr int64_t kElements = 1000;
constexpr uint64_t kBytes = kElements * sizeof(float);

// A forward's tensors; only their parcels keep memory.
void Forward(c10::Device device,
             const std::function<void(const torch::Tensor&)>& save) {
  torch::Tensor x = torch::ones({kElements}, device);
  for (int i = 0; i < kTensors; ++i) {
    x = x * 1.5 + i;
    save(x);
  }
}

class SimOffload : public ::testing::TestWithParam<uint64_t> {
 protected:
  SimOffload() {
    at::set_num_threads(1);
    sim::options().seed = std::random_device()();
    sim::options().max_delay_us = 300;
    c10::impl::VirtualGuardImpl(c10::kCUDA).synchronizeDevice(0);
    sim::TakeRaces();
    Forward(c10::kCPU, [this](const torch::Tensor& x) { want_.push_back(x); });
  }

  std::vector<torch::Tensor> want_;
};

TEST_P(SimOffload, TensorsComeBackAsTheyWere) {
  SCOPED_TRACE(sim::options().seed);
  const c10::Device device(c10::kCUDA, 0);
  OffloadStream offload(device, GetParam() * kBytes);
  int64_t peak = 0;
  for (int round = 0; round < 4; ++round) {
    sim::ResetPeakMemory();
    sim::TakeHostWaits();
    std::vector<std::unique_ptr<Parcel>> parcels;
    Forward(device, [&](const torch::Tensor& x) {
      parcels.push_back(std::make_unique<Parcel>(offload, x));
    });
    std::vector<torch::Tensor> sums;
    for (int i = kTensors; i-- > 0;) {
      sums.push_back(parcels[i]->Unpack() + 1);
      parcels[i].reset();
      // A backward's own memory, which may be memory that was freed.
      torch::zeros({kElements}, device).add_(1);
    }
    EXPECT_THAT(sim::TakeHostWaits(), IsEmpty());
    if (round == 1) peak = sim::memory_stats().peak;
    if (round > 1) EXPECT_EQ(sim::memory_stats().peak, peak) << round;
    for (int i = 0; i < kTensors; ++i) {
      EXPECT_TRUE(sums[i].cpu().equal(want_[kTensors - 1 - i] + 1)) << i;
    }
  }
  EXPECT_THAT(sim::TakeRaces(), IsEmpty());
}

TEST_P(SimOffload, UnusedTensorsAreFreedInTime) {
  SCOPED_TRACE(sim::options().seed);
  const c10::Device device(c10::kCUDA, 0);
  OffloadStream offload(device, GetParam() * kBytes);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::unique_ptr<Parcel>> parcels;
    Forward(device, [&](const torch::Tensor& x) {
      parcels.push_back(std::make_unique<Parcel>(offload, x));
    });
    // Earlier parcels are fetched ahead: the next round's forward drops them,
    // or their destructors do.
    const torch::Tensor sum = parcels.back()->Unpack() + 1;
    if (round % 2 == 0) {
      parcels.clear();
    } else {
      Forward(device, [&](const torch::Tensor& x) {
        parcels.push_back(std::make_unique<Parcel>(offload, x));
      });
    }
    torch::zeros({kElements}, device).add_(1);
    EXPECT_TRUE(sum.cpu().equal(want_.back() + 1)) << round;
  }
  EXPECT_THAT(sim::TakeRaces(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Windows, SimOffload,
                         ::testing::Values(0, 1, 3, 2 * kTensors));

}  // namespace
}  // namespace fsdp::testing
