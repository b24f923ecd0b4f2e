// SPDX-License-Identifier: Apache-2.0
// A tower of layers under fully_shard, layer by layer, that records results and
// counts collectives; with the gradients that it must have. For the FSDPModule
// tests, inside the processes that RunRanks starts.
#ifndef TESTS_FSDP_SHARDED_TOWER_H_
#define TESTS_FSDP_SHARDED_TOWER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ATen/Parallel.h"
#include "fsdp/engine/fsdp_state.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "gtest/gtest.h"
#include "tests/testing/counting_backend.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {

using Log = std::vector<std::string>;

// Equally large layers between two Linears that belong to the root; records the
// results.
struct TowerImpl : torch::nn::Module {
  explicit TowerImpl(int64_t num_layers = 3) {
    stem = register_module("stem", torch::nn::Linear(4, 6));
    for (int64_t i = 0; i < num_layers; ++i) {
      layers.push_back(
          register_module(std::to_string(i), torch::nn::Linear(6, 6)));
    }
    top = register_module("top", torch::nn::Linear(6, 4));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor h = stem(x);
    for (size_t i = 0; i < layers.size(); ++i) {
      h = torch::tanh(layers[i](h));
      if (log == nullptr) continue;
      const std::string name = std::to_string(i);
      log->push_back("forward " + name);
      if (!h.requires_grad()) continue;
      h.register_hook([this, name](const torch::Tensor&) {
        log->push_back("backward " + name);
      });
    }
    return top(h);
  }
  torch::nn::Linear stem{nullptr}, top{nullptr};
  std::vector<torch::nn::Linear> layers;
  Log* log = nullptr;
};
TORCH_MODULE(Tower);

// The same weights everywhere.
inline Tower MakeTower(int64_t num_layers = 3) {
  torch::manual_seed(11);
  return Tower(num_layers);
}

// Differs from rank to rank.
inline torch::Tensor InputOf(int64_t rank) {
  return torch::linspace(-1, 1, 8).view({2, 4}) * (1 + 0.5 * rank);
}

inline torch::Tensor LossOf(Tower& tower, const torch::Tensor& x) {
  return tower->forward(x).pow(2).sum();
}

// Each parameter's gradient without sharding, summed over `ranks`.
inline std::map<std::string, torch::Tensor> SummedGradients(
    const std::vector<int64_t>& ranks) {
  Tower reference = MakeTower();
  for (const int64_t rank : ranks) LossOf(reference, InputOf(rank)).backward();
  std::map<std::string, torch::Tensor> gradients;
  for (const auto& item : reference->named_parameters()) {
    gradients[item.key()] = item.value().grad();
  }
  return gradients;
}

inline void ExpectGradients(const Tower& tower, double scale,
                            const std::vector<int64_t>& ranks) {
  const auto want = SummedGradients(ranks);
  for (const auto& [name, parameter] : fsdp::named_parameters(*tower)) {
    ASSERT_TRUE(parameter.grad().has_value()) << name;
    EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                want.at(name) * scale, 1e-4, 1e-6))
        << name;
  }
}

inline void ExpectNoGradients(const torch::nn::Module& module) {
  for (const auto& [name, parameter] : fsdp::named_parameters(module)) {
    EXPECT_FALSE(parameter.grad().has_value()) << name;
  }
}

inline void ClearGradients(torch::nn::Module& module) {
  for (auto& p : module.parameters()) p.mutable_grad() = torch::Tensor();
}

struct Sharded {
  Tower tower{nullptr};
  FSDPModule root;
  std::vector<FSDPModule> layers;
  CountingBackend* counts;

  Log Counts() const {
    Log counted;
    if (const int64_t n = counts->calls("all_gather")) {
      counted.push_back("gathers " + std::to_string(n));
    }
    if (const int64_t n = counts->calls("reduce_scatter")) {
      counted.push_back("reduces " + std::to_string(n));
    }
    counts->Reset();
    return counted;
  }
  void Forward() { loss = LossOf(tower, InputOf(get_rank())); }
  void Backward() { loss.backward(); }
  torch::Tensor loss;
};

inline Sharded ShardTower(const FullyShardOptions& options = {},
                          int64_t num_layers = 3) {
  Tower tower = MakeTower(num_layers);
  std::vector<FSDPModule> layers;
  for (const auto& layer : tower->layers) {
    layers.push_back(fully_shard(layer, options));
  }
  const FSDPModule root = fully_shard(tower, options);
  const ProcessGroup group = root.state()->group()->config().shard_group;
  return {tower, root, layers, &Count(group), {}};
}

inline void InitRank() {
  at::set_num_threads(1);
  init_process_group();
}

inline DeviceMesh HybridMesh() {
  return init_device_mesh("cpu", {2, 2}, {"replicate", "shard"});
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_SHARDED_TOWER_H_
