// SPDX-License-Identifier: Apache-2.0
// Parallelism that only a GPU can test, with one rank: rules, moves and grouped
// products run on CUDA's tensors and streams. Run with --config=cuda.
#include <cstddef>
#include <optional>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/context/context_parallel.h"
#include "fsdp/parallel/experts/grouped_experts.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "gtest/gtest.h"
#include "torch/nn.h"
#include "torch/optim/adam.h"
#include "torch/types.h"

namespace fsdp {
namespace {

torch::nn::Sequential MakeParallelModel() {
  torch::manual_seed(42);
  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::GELU(),
                              torch::nn::Linear(32, 4));
  model->to(torch::kCUDA);
  return model;
}

std::vector<double> Train(torch::nn::Sequential& model,
                          const std::optional<DeviceMesh>& cp) {
  torch::optim::Adam optimizer(model->parameters(), 1e-2);
  std::vector<double> losses;
  for (int step = 0; step < 10; ++step) {
    torch::manual_seed(step);
    torch::Tensor x = torch::randn({2, 16, 8}).to(torch::kCUDA);
    if (cp.has_value()) context_parallel(*cp, {&x});
    const torch::Tensor loss = model->forward(x).square().mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(full_tensor(loss).item<double>());
  }
  return losses;
}

TEST(CudaParallel, TrainsAsWithoutParallelism) {
  init_process_group();
  const DeviceMesh mesh =
      init_device_mesh("cuda", {1, 1, 1}, {"dp", "cp", "tp"});
  torch::nn::Sequential reference = MakeParallelModel();
  torch::nn::Sequential model = MakeParallelModel();
  parallelize_module(model, mesh["tp"],
                     {{"0", ColwiseParallel()},
                      {"2", RowwiseParallel({.output_layouts = Shard(1)})}});
  fully_shard(model, {.mesh = mesh["dp"]});
  const std::vector<double> want = Train(reference, {});
  const std::vector<double> got = Train(model, mesh["cp"]);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 1e-5) << "step " << i;
  }
  destroy_process_group();
}

// The device's kernels that return the log-sum-exp, and the plain formula for a
// head size that they do not take.
TEST(CudaParallel, RingAttentionMatchesPlainAttention) {
  init_process_group();
  const DeviceMesh cp = init_device_mesh("cuda", {1}, {"cp"});
  for (const c10::ScalarType dtype : {torch::kFloat, torch::kBFloat16}) {
    for (const int64_t head_size : {16, 20}) {
      torch::manual_seed(3);
      std::vector<torch::Tensor> results;
      const torch::Tensor whole =
          torch::randn({3, 2, 4, 40, head_size}).to(torch::kCUDA, dtype);
      for (const bool is_cut : {false, true}) {
        const torch::Tensor inputs = whole.clone().set_requires_grad(true);
        torch::Tensor q = inputs[0];
        torch::Tensor k = inputs[1];
        torch::Tensor v = inputs[2];
        if (is_cut) {
          context_parallel(cp, {&q, &k, &v},
                           {.seq_dim = 2, .method = "alltoall"});
        }
        const torch::Tensor out =
            full_tensor(at::scaled_dot_product_attention(q, k, v, {}, 0, true));
        (out * whole[0]).sum().backward();
        results.push_back(out);
        results.push_back(inputs.grad());
      }
      const double tolerance = dtype == torch::kFloat ? 1e-4 : 5e-2;
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(
            torch::allclose(results[i + 2], results[i], tolerance, tolerance))
            << "result " << i << ", " << dtype << ", head size " << head_size;
      }
    }
  }
  destroy_process_group();
}

TEST(CudaParallel, GroupedProductsMatchALoop) {
  torch::manual_seed(3);
  const auto random = [](torch::IntArrayRef sizes) {
    return (0.1 * torch::randn(sizes)).to(torch::kCUDA, torch::kBFloat16);
  };
  const torch::Tensor w1 = random({4, 32, 16});
  const torch::Tensor w2 = random({4, 16, 32});
  const torch::Tensor w3 = random({4, 32, 16});
  const torch::Tensor rows = random({24, 16});
  const torch::Tensor counts =
      torch::tensor({8, 0, 9, 7}, torch::kLong).to(torch::kCUDA);
  EXPECT_TRUE(torch::allclose(RunExpertsGrouped(w1, w2, w3, rows, counts),
                              RunExpertsInALoop(w1, w2, w3, rows, counts),
                              /*rtol=*/2e-2, /*atol=*/1e-3));
}

}  // namespace
}  // namespace fsdp
