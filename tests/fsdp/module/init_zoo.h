// SPDX-License-Identifier: Apache-2.0
// Zoo: a module with one layer of each kind that is hard to shard, and a
// comparison between two such modules, where one may be sharded. For tests of
// initial values.
#ifndef TESTS_FSDP_MODULE_INIT_ZOO_H_
#define TESTS_FSDP_MODULE_INIT_ZOO_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "gtest/gtest.h"
#include "torch/nn.h"

namespace fsdp::testing {

// Rows that do not divide evenly, one row, one dimension, buffers, padding.
struct ZooImpl : torch::nn::Module {
  ZooImpl() {
    register_module("linear", torch::nn::Linear(5, 7));
    register_module("one", torch::nn::Linear(3, 1));
    register_module("bilinear", torch::nn::Bilinear(3, 4, 5));
    register_module("conv",
                    torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 6, 3)));
    register_module("norm", torch::nn::BatchNorm2d(6));
    register_module("group",
                    torch::nn::GroupNorm(torch::nn::GroupNormOptions(2, 6)));
    register_module(
        "embed",
        torch::nn::Embedding(torch::nn::EmbeddingOptions(9, 4).padding_idx(8)));
    register_module("bag", torch::nn::EmbeddingBag(5, 3));
    register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(3, 4)));
    register_module("cell", torch::nn::GRUCell(3, 4));
    register_module(
        "attention",
        torch::nn::MultiheadAttention(
            torch::nn::MultiheadAttentionOptions(4, 2).add_bias_kv(true)));
    register_module("prelu", torch::nn::PReLU());
    register_module(
        "transformer",
        torch::nn::TransformerEncoderLayer(
            torch::nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(
                6)));
  }
};
TORCH_MODULE(Zoo);

inline std::vector<std::pair<std::string, at::Tensor>> Copies(
    const torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> copies;
  for (const auto& item : module.named_parameters()) {
    const std::optional<DTensor> sharded = dtensor_of(item.value());
    copies.emplace_back(item.key(), sharded.has_value()
                                        ? sharded->full_tensor()
                                        : item.value().detach().clone());
  }
  for (const auto& item : module.named_buffers()) {
    copies.emplace_back(item.key(), item.value().clone());
  }
  return copies;
}

inline void ExpectSame(const torch::nn::Module& got,
                       const torch::nn::Module& want) {
  const auto a = Copies(got);
  const auto b = Copies(want);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(torch::equal(a[i].second, b[i].second)) << a[i].first;
  }
}

inline FullyShardOptions OnCpu() {
  init_process_group();
  return {.mesh = init_device_mesh("cpu", {get_world_size()})};
}

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_MODULE_INIT_ZOO_H_
