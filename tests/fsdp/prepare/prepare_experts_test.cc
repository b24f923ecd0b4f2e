// SPDX-License-Identifier: Apache-2.0
// Experts that a config has divided among ranks.

#include <string>

#include "config/read_config.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/prepare/prepare.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/experts/tiny_moe.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/nn.h"
#include "torch/optim/sgd.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;

TEST(PrepareExperts, TrainAsInOneProcess) {
  RunRanks(4, [] {
    StartRankInDouble();
    const ReadConfig read = read_config_text("run.toml", R"(
[parallelism]
data_parallel_shard_degree = 4
expert_parallel_degree = 2
[training]
mixed_precision_param = "float32"
[activation_checkpoint]
mode = "none"
)");
    ASSERT_OK(read.findings.ToStatus());
    TinyMoE whole, model;
    torch::optim::SGD reference(whole->parameters(), 0.1);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    TrainConfig config = read.config;
    config.loop = {};  // the optimizer is not an AdamW
    config.precision = {};
    const absl::StatusOr<Prepared> training = prepare(
        model, config,
        {.layers = {"MoELayerImpl"}, .optimizer = &optimizer, .device = "cpu"});
    ASSERT_OK(training.status());
    // 2 for experts, 2 layers, the root
    ASSERT_EQ(training->groups.size(), 5u);
    EXPECT_TRUE(training->root == training->groups.back());
    const int64_t share = kTokens / 4;
    for (int64_t step = 0; step < 3; ++step) {
      reference.zero_grad();
      ComputeLoss(whole, MakeBatch(step, 0, kTokens)).backward();
      reference.step();
      optimizer.zero_grad();
      ComputeLoss(model, MakeBatch(step, share * get_rank(), share)).backward();
      optimizer.step();
    }
    const auto expected = whole->named_parameters();
    for (const auto& [name, parameter] : named_parameters(*model)) {
      EXPECT_TRUE(torch::allclose(parameter.full_tensor(), expected[name],
                                  1e-10, 1e-12))
          << name;
      if (name.find("experts") == std::string::npos) continue;
      EXPECT_THAT(parameter.device_mesh().mesh_dim_names(),
                  ElementsAre("efsdp", "ep"));
    }
  });
}

}  // namespace
}  // namespace fsdp::testing
