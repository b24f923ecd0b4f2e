// SPDX-License-Identifier: Apache-2.0
// The program on the first screen of fsdp/README.md.
//
// Tested by tests/fsdp/examples/quick_start_test.sh.

#include <iostream>

#include "tessera/fsdp.h"
#include "torch/nn.h"
#include "torch/optim/adamw.h"
#include "torch/types.h"

// Any module: nothing in it knows of sharding.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < 4; ++i) {
      blocks->push_back(torch::nn::Sequential(torch::nn::Linear(64, 256),
                                              torch::nn::GELU(),
                                              torch::nn::Linear(256, 64)));
    }
    register_module("blocks", blocks);
    head = register_module("head", torch::nn::Linear(64, 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& block : *blocks) {
      x = x + block->as<torch::nn::Sequential>()->forward(x);
    }
    return head(x);
  }
  torch::nn::ModuleList blocks;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

int main() {
  fsdp::init_process_group();  // from torchrun, mpirun or srun, or alone
  torch::manual_seed(0);       // the same weights on every rank
  Net net;
  const fsdp::FullyShardOptions options{
      .mesh = fsdp::init_device_mesh("cpu", {fsdp::get_world_size()})};
  for (auto& block : *net->blocks) fsdp::fully_shard(block, options);
  fsdp::fully_shard(net, options);  // the rest: the head

  // The optimizer comes after sharding: it sees this rank's shards.
  torch::optim::AdamW optimizer(net->parameters(), 1e-2);
  torch::manual_seed(1 + fsdp::get_rank());
  const torch::Tensor x = torch::randn({32, 64});  // other data on each rank
  const torch::Tensor y = x.sum(1, /*keepdim=*/true);
  for (int step = 0; step < 30; ++step) {
    const torch::Tensor loss = (net(x) - y).square().mean();
    optimizer.zero_grad();
    loss.backward();
    fsdp::clip_grad_norm_(fsdp::parameters(*net), 1.0);
    optimizer.step();
    if (fsdp::get_rank() == 0 && step % 10 == 9) {
      std::cout << "step " << step + 1 << " loss " << loss.item<float>()
                << std::endl;
    }
  }
  fsdp::destroy_process_group();
}
