// SPDX-License-Identifier: Apache-2.0
// Small modules for the fully_shard tests, and the parameter names in a group.
#ifndef TESTS_FSDP_MLP_TOWER_H_
#define TESTS_FSDP_MLP_TOWER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {

// A job that consists of only this process; it lasts as long as the binary.
inline void OneRank() {
  if (!is_initialized()) init_process_group();
}

inline DeviceMesh MeshOf(const std::vector<int64_t>& shape,
                         const std::vector<std::string>& names = {}) {
  return init_device_mesh("cpu", shape, names);
}

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(int64_t dim = 4) {
    first = register_module("first", torch::nn::Linear(dim, 2 * dim));
    second = register_module("second", torch::nn::Linear(2 * dim, dim));
    shift = register_buffer("shift", torch::full({dim}, 0.5));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return second(torch::relu(first(x))) + shift;
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::Tensor shift;
};
TORCH_MODULE(Mlp);

struct MlpTowerImpl : torch::nn::Module {
  explicit MlpTowerImpl(int64_t num_layers) {
    for (int64_t i = 0; i < num_layers; ++i) {
      layers.push_back(
          register_module(std::string(1, static_cast<char>('a' + i)), Mlp(4)));
    }
    scale = register_parameter("scale", torch::ones({4}));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (Mlp& layer : layers) x = layer(x);
    return x * scale;
  }
  std::vector<Mlp> layers;
  torch::Tensor scale;
};
TORCH_MODULE(MlpTower);

inline std::vector<std::string> OwnParameters(const FSDPModule& module) {
  std::vector<std::string> names;
  if (module.state()->group() == nullptr) return names;
  for (const auto& param : module.state()->group()->params()) {
    names.push_back(param->name());
  }
  return names;
}

inline std::vector<std::string> NamesOf(
    const std::vector<FSDPModule>& modules) {
  std::vector<std::string> names;
  for (const FSDPModule& module : modules) names.push_back(module.name());
  return names;
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_MLP_TOWER_H_
