// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/megatron_names.h"

#include "gtest/gtest.h"

namespace dcp {
namespace {

TEST(MegatronNames, StackedLayersHaveNoNumber) {
  const auto name = SplitStackedName(
      "optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1.weight");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->before, "optimizer.state.exp_avg.decoder.layers.");
  EXPECT_EQ(name->after, ".mlp.linear_fc1.weight");
  EXPECT_EQ(SplitStackedName("decoder.layers.0.mlp.weight"), std::nullopt);
  EXPECT_EQ(SplitStackedName("decoder.layers."), std::nullopt);
  EXPECT_EQ(SplitStackedName("decoder.final_layernorm.weight"), std::nullopt);
}

TEST(MegatronNames, StateOfAParameter) {
  const auto name = SplitOptimizerName("optimizer.state.exp_avg.a.b.weight");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->state, "exp_avg");
  EXPECT_EQ(name->parameter, "a.b.weight");
  EXPECT_EQ(name->chain, "");
  const auto chained = SplitOptimizerName("chained_12.optimizer.state.x.w");
  ASSERT_TRUE(chained.has_value());
  EXPECT_EQ(chained->state, "x");
  EXPECT_EQ(chained->parameter, "w");
  EXPECT_EQ(chained->chain, "12");
  for (const char* other :
       {"optimizer.state.exp_avg", "optimizer.state.exp_avg.",
        "optimizer.state..w", "chained_.optimizer.state.x.w",
        "chained_x.optimizer.state.x.w", "optimizer.distributed.x", "w"}) {
    EXPECT_EQ(SplitOptimizerName(other), std::nullopt) << other;
  }
}

TEST(MegatronNames, PartsOfOptimizers) {
  const char* const buffer =
      "optimizer.distributed.dp_group_idx_0.gbuf_idx_1000000000."
      "dtype_(torch.float32, torch.float32).bucket_idx_0.exp_avg";
  EXPECT_TRUE(IsFlatBuffer(buffer));
  EXPECT_TRUE(IsFlatBuffer(std::string("chained_0.") + buffer));
  EXPECT_FALSE(IsFlatBuffer("optimizer.distributed.dp_group_idx_0.param"));
  EXPECT_FALSE(IsFlatBuffer("optimizer.state.exp_avg.w"));
  EXPECT_TRUE(IsOptimizerName("optimizer.state.exp_avg.w"));
  EXPECT_TRUE(IsOptimizerName("chained_0.optimizer.x"));
  EXPECT_FALSE(IsOptimizerName("decoder.optimizer.x"));
}

TEST(MegatronNames, MeshOfTheRandomState) {
  EXPECT_EQ(MeshInName("rng_state/shard_0.1_2.4"), "pipeline=2,tensor=4");
  // False names, and old releases' names without the last number.
  for (const char* other :
       {"rng_state/shard_2.1_2.4", "rng_state/shard_-1.0_2.2",
        "rng_state/shard_0.1_2", "rng_state/shard_0_1",
        "rng_state/shard_0.1_2.99999999999999999999", "rng_state/shard_",
        "rng_state/shard_0.1_2.4_1", "x/shard_0.0_1.1"}) {
    EXPECT_EQ(MeshInName(other), "") << other;
  }
}

}  // namespace
}  // namespace dcp
