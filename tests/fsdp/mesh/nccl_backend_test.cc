// SPDX-License-Identifier: Apache-2.0
// Tests that require a GPU, with one rank: the backend is found, registers, and
// reduces; and training with streams, events and pinned memory gives the same
// result as without. Linked everywhere, run with --config=cuda.
#include <vector>

#include "ATen/ops/full.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/collective_errors.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "gtest/gtest.h"
#include "torch/nn.h"
#include "torch/optim/adam.h"
#include "torch/types.h"

namespace fsdp {
namespace {

torch::nn::Sequential MakeModel() {
  torch::manual_seed(42);
  return torch::nn::Sequential(torch::nn::Linear(8, 32), torch::nn::GELU(),
                               torch::nn::Linear(32, 32), torch::nn::GELU(),
                               torch::nn::Linear(32, 4));
}

// Losses from ten steps on the GPU.
std::vector<double> Train(torch::nn::Sequential& model) {
  torch::optim::Adam optimizer(model->parameters(), 1e-2);
  std::vector<double> losses;
  for (int step = 0; step < 10; ++step) {
    torch::manual_seed(step);
    const torch::Tensor x = torch::randn({16, 8}).to(torch::kCUDA);
    const torch::Tensor loss = model->forward(x).square().mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

void ExpectTrainsAsWithout(FullyShardOptions options) {
  init_process_group();
  options.mesh = init_device_mesh("cuda", {1}, {"shard"});
  torch::nn::Sequential reference = MakeModel();
  reference->to(torch::kCUDA);
  torch::nn::Sequential model = MakeModel();  // on the CPU: the call moves it
  for (const size_t layer : {0, 2}) fully_shard(model->ptr(layer), options);
  fully_shard(model, options);
  const std::vector<double> want = Train(reference);
  const std::vector<double> got = Train(model);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 1e-5) << "step " << i;
  }
  destroy_process_group();
}

TEST(Cuda, TrainsAsWithoutSharding) { ExpectTrainsAsWithout({}); }

TEST(Cuda, OffloadsToPinnedMemory) {
  ExpectTrainsAsWithout({.offload_policy = CPUOffloadPolicy{}});
}

TEST(Nccl, OneRankReduces) {
  init_process_group();
  const DeviceMesh mesh = init_device_mesh("cuda", {1}, {"shard"});
  EXPECT_TRUE(mesh.device().is_cuda());
  const ProcessGroup group = mesh.get_group();
  std::vector<at::Tensor> tensors = {
      at::full({4}, 3.0, at::TensorOptions(mesh.device()))};
  WaitForWork(
      IssueWork(*group, "sum", [&] { return group->allreduce(tensors); }),
      *group, "sum");
  EXPECT_EQ(tensors[0].sum().item<float>(), 12);
  EXPECT_EQ(group->getBackend(c10::DeviceType::CPU)->getBackendName(), "gloo");
  destroy_process_group();
}

}  // namespace
}  // namespace fsdp
