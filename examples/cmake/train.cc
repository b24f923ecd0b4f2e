// SPDX-License-Identifier: Apache-2.0
// Trains a small model on all processes in a job and saves it as a checkpoint
// that any number of processes, here or in Python, can load:
//
//   torchrun --no-python --nproc-per-node=2 train CHECKPOINT

#include <cstdint>
#include <iostream>

#include "absl/status/status.h"
#include "tessera/fsdp.h"
#include "torch/nn.h"
#include "torch/optim/adamw.h"
#include "torch/types.h"

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    up = register_module("up", torch::nn::Linear(16, 64));
    down = register_module("down", torch::nn::Linear(64, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return down(torch::gelu(up(x)));
  }
  torch::nn::Linear up{nullptr};
  torch::nn::Linear down{nullptr};
};
TORCH_MODULE(Net);

absl::Status Train(const char* path) {
  torch::manual_seed(0);  // the same weights on every rank
  Net net;
  const fsdp::FullyShardOptions options{
      .mesh = fsdp::init_device_mesh("cpu", {fsdp::get_world_size()})};
  fsdp::fully_shard(net->up, options);
  fsdp::fully_shard(net, options);
  torch::optim::AdamW optimizer(net->parameters(), 1e-2);

  torch::manual_seed(1 + fsdp::get_rank());
  const torch::Tensor x = torch::randn({32, 16});  // each rank has other data
  const torch::Tensor y = x.sum(1, /*keepdim=*/true);
  constexpr int64_t kNumSteps = 30;
  for (int64_t step = 1; step <= kNumSteps; ++step) {
    const torch::Tensor loss = (net(x) - y).square().mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (fsdp::get_rank() == 0 && step % 10 == 0) {
      std::cout << "step " << step << " loss " << loss.item<float>()
                << std::endl;
    }
  }

  const auto model = fsdp::get_model_state_dict(*net);
  if (!model.ok()) return model.status();
  return fsdp::save({{"model", *model}, {"step", kNumSteps}}, path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "Usage: train CHECKPOINT\n";
    return 2;
  }
  fsdp::init_process_group();  // from torchrun, mpirun or srun, or alone
  const absl::Status trained = Train(argv[1]);
  fsdp::destroy_process_group();
  if (!trained.ok()) {
    std::cerr << trained << "\n";
    return 1;
  }
}
