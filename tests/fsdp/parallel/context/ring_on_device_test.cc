// SPDX-License-Identifier: Apache-2.0
// Ring attention on the simulated device: with any delay of a message or a
// kernel the results are those of the CPU, without a race.

#include <vector>

#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/context/context_parallel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "tests/testing/sim_device/sim_device.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

std::vector<torch::Tensor> AttendTwice(const torch::Tensor& inputs,
                                       const DeviceMesh* cp) {
  torch::Tensor q = inputs[0];
  torch::Tensor k = inputs[1];
  torch::Tensor v = inputs[2];
  if (cp != nullptr) {
    context_parallel(*cp, {&q, &k, &v}, {.seq_dim = 2, .method = "alltoall"});
  }
  const torch::Tensor h =
      at::scaled_dot_product_attention(q, k, v, {}, 0, /*is_causal=*/true);
  const torch::Tensor out =
      full_tensor(at::scaled_dot_product_attention(h, k, h, {}, 0, true));
  out.square().sum().backward();
  return {out.detach().cpu(), inputs.grad().cpu()};
}

TEST(RingOnDevice, EqualsTheCpuWithoutARace) {
  RunRanks(3, [] {
    init_process_group();
    const DeviceMesh cp = init_device_mesh("cuda", {3}, {"cp"});
    torch::manual_seed(4);
    sim::TakeRaces();
    for (int repeat = 0; repeat < 3; ++repeat) {
      const torch::Tensor values = torch::randn({3, 2, 4, 24, 8});
      const std::vector<torch::Tensor> expected =
          AttendTwice(values.clone().set_requires_grad(true), nullptr);
      const std::vector<torch::Tensor> results =
          AttendTwice(values.to(cp.device()).set_requires_grad(true), &cp);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(torch::allclose(results[i], expected[i], 1e-4, 1e-4))
            << i << " in repeat " << repeat;
      }
    }
    EXPECT_THAT(sim::TakeRaces(), ::testing::IsEmpty());
  });
}

}  // namespace
}  // namespace fsdp::testing
