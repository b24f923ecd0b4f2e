// SPDX-License-Identifier: Apache-2.0

#include "config/explain/explain.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

// Two layers with [10, 4] and [4], an embedding and an output with [7, 4].
std::vector<ParameterShape> Model() {
  std::vector<ParameterShape> parameters = {{"embed.weight", {7, 4}}};
  for (const char* layer : {"layers.0", "layers.1"}) {
    parameters.push_back({std::string(layer) + ".up.weight", {10, 4}});
    parameters.push_back({std::string(layer) + ".norm.weight", {4}});
  }
  parameters.push_back({"head.weight", {7, 4}});
  return parameters;
}

Explanation Explain(const TrainConfig& config, int64_t world_size) {
  const absl::StatusOr<Explanation> result =
      explain(config, {.world_size = world_size,
                       .local_world_size = world_size,
                       .parameters = Model(),
                       .local_batch_size = 2,
                       .seq_len = 3});
  EXPECT_OK(result.status());
  return result.value_or(Explanation{});
}

TEST(Explain, CountsShardsOnTheFullestRank) {
  const Explanation on4 = Explain({}, 4);
  EXPECT_EQ(on4.num_elements, 144u);
  EXPECT_EQ(on4.zero_stage, 3);
  ASSERT_EQ(on4.groups.size(), 3u);
  // 10 rows over 4 ranks are 3 per rank, 7 rows are 2, and 4 elements are 1.
  const uint64_t local = 2 * (3 * 4 + 1) + 2 * (2 * 4);
  EXPECT_EQ(on4.memory.parameters, local * 4);
  EXPECT_EQ(on4.memory.gradients, local * 4);
  EXPECT_EQ(on4.memory.optimizer_state, 2 * local * 4);
}

TEST(Explain, GathersTheRootAndTwoLayersAtOnce) {
  const uint64_t layer = 4 * (3 * 4 + 1), root = 4 * (2 * (2 * 4));
  const Explanation on4 = Explain({}, 4);
  EXPECT_EQ(on4.memory.gathered, (root + 2 * layer) * 4);
  // In float32: the root's gradients, because the root is the largest group,
  // and the buffers from which the root and a layer are reduced.
  EXPECT_EQ(on4.memory.unreduced, (2 * root + layer) * 4);
}

TEST(Explain, LowPrecisionHalvesGatheredMemoryOnly) {
  TrainConfig config;
  config.precision.param_dtype = dcp::DType::kBFloat16;
  config.precision.reduce_dtype = dcp::DType::kFloat32;
  const Explanation low = Explain(config, 4);
  const Explanation full = Explain({}, 4);
  EXPECT_EQ(low.memory.parameters, full.memory.parameters);
  EXPECT_EQ(2 * low.memory.gathered, full.memory.gathered);
  // 64 elements in the root in bfloat16; 64 and a layer's 52 in float32.
  EXPECT_EQ(low.memory.unreduced, 64u * 2 + (64 + 52) * 4);
}

TEST(Explain, ReducesInTheDtypeOfTheShardsUnlessTheConfigSaysOtherwise) {
  TrainConfig config;
  config.precision.param_dtype = dcp::DType::kBFloat16;
  EXPECT_EQ(config.precision.reduces_in(), dcp::DType::kFloat32);
  const Explanation own = Explain(config, 4);
  EXPECT_EQ(own.memory.unreduced, 64u * 2 + (64 + 52) * 4);
  config.precision.reduce_dtype = dcp::DType::kBFloat16;
  const Explanation low = Explain(config, 4);
  EXPECT_EQ(low.memory.unreduced, 64u * 2 + (64 + 52) * 2);
}

TEST(Explain, KeepingParametersIsZero2AndGathersAll) {
  TrainConfig config;
  config.sharding.reshard_after_forward = ReshardSetting(false);
  const Explanation kept = Explain(config, 4);
  EXPECT_EQ(kept.zero_stage, 2);
  EXPECT_EQ(kept.memory.gathered, 4 * (4 * (2 * 13 + 2 * 8)));
}

TEST(Explain, ReshardingToANumberKeepsThatShare) {
  TrainConfig config;
  config.sharding.auto_wrap_policy = AutoWrapPolicy::kNoWrap;
  const uint64_t all = Explain(config, 4).memory.gathered;
  config.sharding.reshard_after_forward = ReshardSetting(int64_t{2});
  EXPECT_EQ(Explain(config, 4).memory.gathered, all + all / 2);
}

TEST(Explain, CopiesDoNotChangeMemoryForEqualShards) {
  TrainConfig config;
  config.mesh.data_parallel_replicate_degree = 2;
  const Explanation hybrid = Explain(config, 8);
  EXPECT_EQ(hybrid.mesh.shard, 4);
  EXPECT_EQ(hybrid.memory.parameters, Explain({}, 4).memory.parameters);
  config.mesh.data_parallel_shard_degree = 1;
  config.mesh.data_parallel_replicate_degree = kReplicateOverRest;
  EXPECT_EQ(Explain(config, 8).zero_stage, 0);
}

TEST(Explain, ContextParallelRanksAlsoShard) {
  TrainConfig config;
  config.mesh.context_parallel_degree = 2;
  const Explanation shared = Explain(config, 4);
  EXPECT_EQ(shared.mesh.shard, 2);
  EXPECT_EQ(shared.memory.parameters, Explain({}, 4).memory.parameters);
  EXPECT_EQ(2 * shared.memory.activations, Explain({}, 4).memory.activations);
  config.mesh.data_parallel_shard_degree = 1;
  EXPECT_EQ(Explain(config, 2).zero_stage, 3);
}

TEST(Explain, OneRankGathersNothing) {
  const Explanation alone = Explain({}, 1);
  EXPECT_EQ(alone.memory.parameters, 144u * 4);
  EXPECT_EQ(alone.memory.gathered, 0u);
  EXPECT_EQ(alone.memory.unreduced, 0u);
}

TEST(Explain, CountsActivationsOfMatricesNormsAndLogits) {
  // For 6 tokens: a layer keeps 4 + 2 * 10 for the matrix and 2 * 4 for the
  // norm; the root keeps twice the width and twice 7 logits.
  EXPECT_EQ(Explain({}, 1).memory.activations,
            6u * 4 * (2 * (24 + 8) + 2 * 4 + 2 * 7));
  TrainConfig recomputing;
  recomputing.sharding.activation_checkpointing = 1;
  EXPECT_EQ(Explain(recomputing, 1).memory.activations,
            6u * 4 * (2 * 4 + 32 + 2 * 4 + 2 * 7));
  recomputing.sharding.activation_checkpointing = 2;  // the second
  EXPECT_EQ(Explain(recomputing, 1).memory.activations,
            6u * 4 * (4 + 32 + 32 + 2 * 4 + 2 * 7));
}

TEST(Explain, KeepsOnlyOneLayersActivationsWhenOffloading) {
  TrainConfig config;
  config.sharding.activation_cpu_offload = true;
  const MemoryPlan memory = Explain(config, 1).memory;
  EXPECT_EQ(memory.activations, 6u * 4 * (32 + 2 * 4 + 2 * 7));
  EXPECT_EQ(memory.activations_on_host, Explain({}, 1).memory.activations);
  EXPECT_EQ(Explain({}, 1).memory.activations_on_host, 0u);
  config.sharding.activation_checkpointing = 1;
  const MemoryPlan recomputing = Explain(config, 1).memory;
  EXPECT_EQ(recomputing.activations, memory.activations);
  // The layers' inputs, and the root's activations.
  EXPECT_EQ(recomputing.activations_on_host, 6u * 4 * (2 * 4 + 2 * 4 + 2 * 7));
}

TEST(Explain, TakesTheBatchFromTheConfig) {
  TrainConfig config;
  config.loop.local_batch_size = 5;
  config.loop.seq_len = 7;
  ASSERT_OK_AND_ASSIGN(const Explanation result, explain(config, {}));
  EXPECT_EQ(result.local_batch_size, 5);
  EXPECT_EQ(result.seq_len, 7);
  EXPECT_TRUE(result.groups.empty());
}

TEST(Explain, RefusesSettingsThatDoNotFit) {
  TrainConfig config;
  config.mesh.data_parallel_shard_degree = 3;
  EXPECT_THAT(explain(config, {.world_size = 8}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  const int64_t huge = int64_t{1} << 40;
  EXPECT_THAT(explain({}, {.parameters = {{"w", {huge, huge}}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'w'")));
  EXPECT_THAT(explain({}, {.parameters = {{"w", {-1}}}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(
      explain({}, {.parameters = {{"w", {1}}},
                   .local_batch_size = huge,
                   .seq_len = huge}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokens")));
}

}  // namespace
}  // namespace fsdp
