// SPDX-License-Identifier: Apache-2.0
// read_environment: the variables that accelerate launch sets.
#include <optional>
#include <string>
#include <vector>

#include "config/read_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct EnvironmentReading {
  TrainConfig config;
  Findings findings;
};

EnvironmentReading ReadVariables(const std::vector<std::string>& variables,
                                 const TrainConfig& base = {}) {
  EnvironmentReading read = {.config = base, .findings = {}};
  read_environment(variables, read.config, read.findings);
  return read;
}

std::vector<std::string> Texts(const Findings& findings) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings.list()) {
    texts.push_back(to_string(finding));
  }
  return texts;
}

// The variables that the launcher sets for a version 2 file.
std::vector<std::string> Launched() {
  return {"PATH=/bin",
          "ACCELERATE_USE_FSDP=true",
          "ACCELERATE_MIXED_PRECISION=bf16",
          "ACCELERATE_DYNAMO_BACKEND=NO",
          "FSDP_VERSION=2",
          "FSDP_SHARDING_STRATEGY=FULL_SHARD",
          "FSDP_RESHARD_AFTER_FORWARD=false",
          "FSDP_OFFLOAD_PARAMS=true",
          "FSDP_MIN_NUM_PARAMS=100000000",
          "FSDP_AUTO_WRAP_POLICY=TRANSFORMER_BASED_WRAP",
          "FSDP_TRANSFORMER_CLS_TO_WRAP=A,B",
          "FSDP_STATE_DICT_TYPE=FULL_STATE_DICT",
          "FSDP_FORWARD_PREFETCH=false",
          "FSDP_USE_ORIG_PARAMS=true",
          "FSDP_CPU_RAM_EFFICIENT_LOADING=true",
          "FSDP_SYNC_MODULE_STATES=true",
          "FSDP_ACTIVATION_CHECKPOINTING=true",
          "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD=false"};
}

TEST(Environment, ReadsLauncherVariablesWithoutFindings) {
  const EnvironmentReading read = ReadVariables(Launched());
  EXPECT_THAT(Texts(read.findings), IsEmpty());
  const TrainConfig& config = read.config;
  EXPECT_EQ(*config.sharding.reshard_after_forward, ReshardSetting(false));
  EXPECT_TRUE(*config.sharding.cpu_offload);
  EXPECT_THAT(*config.sharding.transformer_layer_cls_to_wrap,
              ElementsAre("A", "B"));
  EXPECT_EQ(*config.checkpoint.state_dict_type, StateDictType::kFullStateDict);
  EXPECT_TRUE(*config.checkpoint.cpu_ram_efficient_loading);
  EXPECT_EQ(*config.sharding.activation_checkpointing, 1);
  EXPECT_EQ(*config.precision.param_dtype, dcp::DType::kBFloat16);
}

TEST(Environment, OverridesTheFile) {
  TrainConfig base;
  base.sharding.cpu_offload = false;
  base.loop.seed = std::optional<int64_t>(3);
  const EnvironmentReading read =
      ReadVariables({"FSDP_OFFLOAD_PARAMS=1"}, base);
  EXPECT_TRUE(*read.config.sharding.cpu_offload);
  EXPECT_EQ(read.config.sharding.cpu_offload.place()->key,
            "FSDP_OFFLOAD_PARAMS");
  EXPECT_EQ(*read.config.loop.seed, 3);
}

TEST(Environment, OffloadsActivations) {
  EXPECT_TRUE(*ReadVariables({"FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD=true"})
                   .config.sharding.activation_cpu_offload);
}

TEST(Environment, IgnoresOtherVariables) {
  const EnvironmentReading read =
      ReadVariables({"HOME=/", "FSDP", "=", "", "ACCELERATE_X=1"});
  EXPECT_THAT(Texts(read.findings), IsEmpty());
  EXPECT_TRUE(same_training(read.config, TrainConfig()));
}

TEST(Environment, ReadsVersion1StrategyFromEitherVariable) {
  const EnvironmentReading reshard =
      ReadVariables({"FSDP_VERSION=1", "FSDP_SHARDING_STRATEGY=FULL_SHARD",
                     "FSDP_RESHARD_AFTER_FORWARD="
                     "shard_grad_op"});
  EXPECT_FALSE(reshard.findings.has_problems());
  EXPECT_EQ(*reshard.config.sharding.reshard_after_forward,
            ReshardSetting(false));
  const EnvironmentReading strategy =
      ReadVariables({"FSDP_VERSION=1", "FSDP_SHARDING_STRATEGY=2",
                     "FSDP_RESHARD_AFTER_FORWARD=true"});
  EXPECT_FALSE(strategy.findings.has_problems());
  EXPECT_EQ(*strategy.config.sharding.reshard_after_forward,
            ReshardSetting(false));
}

TEST(Environment, DisabledFsdpReadsNoOptions) {
  const EnvironmentReading read =
      ReadVariables({"ACCELERATE_USE_FSDP=false", "FSDP_VERSION=7"});
  EXPECT_THAT(Texts(read.findings), IsEmpty());
}

TEST(Environment, ReadsDegreesFromParallelismConfig) {
  std::vector<std::string> variables = {
      "PARALLELISM_CONFIG_DP_REPLICATE_SIZE=2",
      "PARALLELISM_CONFIG_DP_SHARD_SIZE=4", "PARALLELISM_CONFIG_CP_SIZE=2",
      "PARALLELISM_CONFIG_CP_BACKEND=torch"};
  // accelerate reads them only if another one says so.
  EXPECT_EQ(*ReadVariables(variables).config.mesh.data_parallel_shard_degree,
            kShardOverRest);
  variables.emplace_back("ACCELERATE_USE_PARALLELISM_CONFIG=true");
  const EnvironmentReading read = ReadVariables(variables);
  EXPECT_THAT(Texts(read.findings), IsEmpty());
  EXPECT_EQ(*read.config.mesh.data_parallel_replicate_degree, 2);
  EXPECT_EQ(*read.config.mesh.data_parallel_shard_degree, 4);
  EXPECT_EQ(*read.config.mesh.context_parallel_degree, 2);
}

// As in accelerate's plugin, each version has a different default.
TEST(Environment, VersionSelectsTheStateDictType) {
  const ReadConfig file =
      read_config_text("f.yaml", "distributed_type: FSDP\n");
  ASSERT_EQ(*file.config.checkpoint.state_dict_type,
            StateDictType::kFullStateDict);
  EXPECT_EQ(*ReadVariables({"FSDP_VERSION=2"}, file.config)
                 .config.checkpoint.state_dict_type,
            StateDictType::kShardedStateDict);
  EXPECT_EQ(
      *ReadVariables({"FSDP_VERSION=2", "FSDP_STATE_DICT_TYPE=FULL_STATE_DICT"},
                     file.config)
           .config.checkpoint.state_dict_type,
      StateDictType::kFullStateDict);
  const ReadConfig said = read_config_text(
      "f.yaml",
      "distributed_type: FSDP\n"
      "fsdp_config: {fsdp_state_dict_type: FULL_STATE_DICT}\n");
  EXPECT_EQ(*ReadVariables({"FSDP_VERSION=2"}, said.config)
                 .config.checkpoint.state_dict_type,
            StateDictType::kFullStateDict);
}

TEST(Environment, ShardingLauncherTurnsCopiesIntoShards) {
  const ReadConfig file =
      read_config_text("f.json", R"({"num_train_epochs": 1, "bf16": true})");
  ASSERT_EQ(*file.config.mesh.data_parallel_shard_degree, 1);
  const EnvironmentReading on = ReadVariables(
      {"ACCELERATE_USE_FSDP=true", "FSDP_VERSION=2", "FSDP_OFFLOAD_PARAMS=1"},
      file.config);
  EXPECT_EQ(*on.config.mesh.data_parallel_shard_degree, kShardOverRest);
  EXPECT_EQ(*on.config.mesh.data_parallel_replicate_degree, 1);
  EXPECT_TRUE(*on.config.sharding.cpu_offload);
  EXPECT_EQ(*on.config.precision.reduce_dtype, dcp::DType::kBFloat16);
  EXPECT_EQ(*on.config.checkpoint.state_dict_type,
            StateDictType::kShardedStateDict);
  // Without the switch, the variables belong to another run.
  const EnvironmentReading off =
      ReadVariables({"FSDP_OFFLOAD_PARAMS=1"}, file.config);
  EXPECT_EQ(*off.config.mesh.data_parallel_shard_degree, 1);
  EXPECT_FALSE(*off.config.sharding.cpu_offload);
}

TEST(Environment, ProblemsNameTheVariable) {
  const EnvironmentReading read = ReadVariables(
      {"FSDP_VERSION=3", "ACCELERATE_USE_DEEPSPEED=true",
       "ACCELERATE_MIXED_PRECISION=fp8", "FSDP_OFLOAD_PARAMS=true"});
  EXPECT_THAT(Texts(read.findings),
              ::testing::UnorderedElementsAre(
                  HasSubstr("environment: FSDP_VERSION is '3'"),
                  HasSubstr("ACCELERATE_USE_DEEPSPEED"),
                  HasSubstr("ACCELERATE_MIXED_PRECISION"),
                  HasSubstr("FSDP_OFLOAD_PARAMS")));
}

}  // namespace
}  // namespace fsdp
