// SPDX-License-Identifier: Apache-2.0
// The simulated clock (SIM_CLOCK=1): which work overlaps, and which waits.
#include <cstdint>
#include <string>

#include "c10/core/Event.h"
#include "c10/core/StreamGuard.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/sim_device/cost_model.h"
#include "tests/testing/sim_device/sim_device.h"
#include "tests/testing/sim_device/simulation.h"
#include "torch/types.h"

namespace sim {
namespace {

const c10::Device kCuda(c10::kCUDA, 0);
constexpr int64_t kSize = 8192;

nlohmann::json Time() {
  return nlohmann::json::parse(Simulation::Get().DescribeTime(0));
}

double Idle(const nlohmann::json& time, const std::string& cause) {
  return time["idle_us"].value(cause, 0.0);
}

TEST(SimClock, WaitsOnlyForWorkThatDoesNotOverlap) {
  const torch::Tensor x = torch::empty(
      {kSize, kSize}, torch::TensorOptions(torch::kBFloat16).device(kCuda));
  const c10::Stream side = NewStream();
  WaitFor(side, DefaultStream(0));
  const nlohmann::json before = Time();
  {
    const c10::StreamGuard guard(side);
    torch::mm(x, x);
    torch::mm(x, x);
  }
  torch::mm(x, x);
  const nlohmann::json alone = Time();
  WaitFor(DefaultStream(0), side);
  const nlohmann::json after = Time();
  const double product = KernelMicros("aten::mm", {x, x}, {});
  EXPECT_GT(product, 1000);
  EXPECT_NEAR(alone["busy_us"].get<double>() - before["busy_us"].get<double>(),
              product, 20);
  // One of the side stream's two products is hidden behind this stream's own.
  EXPECT_NEAR(Idle(after, "aten::mm") - Idle(alone, "aten::mm"), product, 50);
}

TEST(SimClock, TheHostWaitsForTheDevice) {
  const torch::Tensor x = torch::empty(
      {kSize, kSize}, torch::TensorOptions(torch::kBFloat16).device(kCuda));
  torch::mm(x, x);
  (void)x[0][0].item<double>();
  const nlohmann::json before = Time();
  // The host issues this when the device has nothing to do any more.
  x.add_(1);
  EXPECT_GT(Idle(Time(), "the host"), Idle(before, "the host"));
}

TEST(SimClock, NothingIsComputed) {
  const torch::Tensor x = torch::ones({4}, kCuda);
  EXPECT_EQ(x.cpu().sum().item<float>(), 0);
}

TEST(SimClock, CollectivesTakeTheTimeOfARing) {
  const double whole = CollectiveMicros("all-gather", 1 << 30, 8, true);
  EXPECT_NEAR(CollectiveMicros("all-reduce", 1 << 30, 8, true), 2 * whole, 50);
  EXPECT_GT(CollectiveMicros("all-gather", 1 << 30, 8, false), 7 * whole);
  EXPECT_LT(CollectiveMicros("all-gather", 1 << 30, 1, true), 10);
}

}  // namespace
}  // namespace sim
