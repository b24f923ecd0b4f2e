// SPDX-License-Identifier: Apache-2.0
// judged_configs_test.cc compares degrees, types, numbers and curves with verl
// itself; this tests the reader's other findings.
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/dialects/verl/verl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Reading ReadText(absl::string_view text) {
  return ReadWith(&ReadVerl, "run.yaml", Syntax::kYaml, text);
}

Reading ReadActor(absl::string_view options) {
  return ReadText(
      absl::StrCat("actor_rollout_ref: {actor: {", options, "}}\n"));
}

TEST(Verl, ReadsTheActor) {
  const Reading reading = ReadText(
      "actor_rollout_ref:\n  actor:\n    strategy: fsdp2\n"
      "    ppo_mini_batch_size: 64\n    ppo_micro_batch_size_per_gpu: 4\n"
      "    grad_clip: 0.5\n    fsdp_config:\n      fsdp_size: 8\n"
      "      wrap_policy: {transformer_layer_cls_to_wrap: [LlamaLayer]}\n"
      "  rollout: {n: 5, tensor_model_parallel_size: 2}\n"
      "  model: {enable_activation_offload: true, lora_rank: 8}\n"
      "critic: {strategy: fsdp}\n"
      "trainer: {nnodes: 2, n_gpus_per_node: 8, project_name: p, save_freq: 20,"
      "  default_local_dir: 'c/${trainer.project_name}',"
      "  max_actor_ckpt_to_keep: 3, total_training_steps: 500}\n");
  const TrainConfig& config = reading.config;
  EXPECT_THAT(reading.findings, Not(Contains(StartsWith("problem"))));
  EXPECT_EQ(*config.sharding.fsdp_version, 2);
  EXPECT_EQ(*config.mesh.data_parallel_shard_degree, 8);
  EXPECT_EQ(*config.mesh.data_parallel_replicate_degree, kReplicateOverRest);
  EXPECT_EQ(*config.mesh.num_processes, 16);
  EXPECT_THAT(*config.sharding.transformer_layer_cls_to_wrap,
              ElementsAre("LlamaLayer"));
  EXPECT_TRUE(*config.sharding.activation_cpu_offload);
  EXPECT_EQ(**config.loop.global_batch_size, 320);
  EXPECT_EQ(**config.loop.local_batch_size, 4);
  EXPECT_EQ(**config.loop.max_norm, 0.5);
  EXPECT_EQ(*config.loop.steps, std::nullopt);
  EXPECT_EQ(*config.checkpoint.folder, "c/p");
  EXPECT_EQ(*config.checkpoint.interval, 20);
  EXPECT_EQ(*config.checkpoint.keep_latest_k, 3);
  EXPECT_THAT(reading.findings,
              Contains(HasSubstr("trainer.total_training_steps has no effect: "
                                 "it counts rounds of generation")));
  EXPECT_THAT(reading.findings,
              Contains(HasSubstr("actor_rollout_ref.model.lora_rank has no "
                                 "effect")));
}

TEST(Verl, ShardCountEqualToRanksMeansAllRanks) {
  const Reading reading = ReadText(
      "actor_rollout_ref: {actor: {fsdp_config: {fsdp_size: 8}}}\n"
      "trainer: {n_gpus_per_node: 8}\n");
  EXPECT_EQ(*reading.config.mesh.data_parallel_shard_degree, kShardOverRest);
  EXPECT_EQ(*reading.config.mesh.data_parallel_replicate_degree, 1);
}

TEST(Verl, ReadsSupervisedTrainingWithoutAnEngine) {
  const Reading reading = ReadText(
      "data: {train_batch_size: 256, micro_batch_size_per_gpu: 4, "
      "max_length: 1024}\n"
      "model: {strategy: fsdp, fsdp_config: {model_dtype: bf16, "
      "cpu_offload: true, offload_params: true}}\n"
      "optim: {lr: 1e-4}\ntrainer: {save_freq: -1, seed: 1, "
      "total_training_steps: 95}\n");
  const TrainConfig& config = reading.config;
  EXPECT_THAT(reading.findings, IsEmpty());
  EXPECT_EQ(*config.sharding.fsdp_version, 1);
  EXPECT_TRUE(*config.sharding.cpu_offload);
  EXPECT_EQ(*config.precision.dtype, dcp::DType::kBFloat16);
  EXPECT_EQ(**config.loop.beta2, 0.95);
  EXPECT_EQ(**config.loop.seed, 1);
  EXPECT_EQ(**config.loop.seq_len, 1024);
  EXPECT_EQ(**config.loop.global_batch_size, 256);
  EXPECT_EQ(*config.checkpoint.interval, 0);
  // Ten per cent, rounded down.
  EXPECT_EQ((*config.loop.lr_schedule)->decay, LrDecay::kCosine);
  EXPECT_EQ((*config.loop.lr_schedule)->warmup_steps, 9);
}

TEST(Verl, ReportsUnsupportedSettings) {
  const auto expect = [](absl::string_view options, const char* problem) {
    EXPECT_THAT(ReadActor(options).findings, Contains(HasSubstr(problem)))
        << options;
  };
  expect("strategy: megatron",
         "strategy is 'megatron', which is not supported: verl shards as "
         "another program does then");
  expect("fsdp_config: {fsdp_sise: 4}", "did you mean fsdp_size?");
  expect("fsdp_config: {fsdp_size: 4, ulysses_sequence_parallel_size: 3}",
         "is 3, which does not divide fsdp_size, 4");
  expect("optim: {optimizer: Adam}", "but the optimizer here is AdamW");
  expect("optim: {lr_scheduler_type: cosine, num_cycles: 2}",
         "a cosine goes from the rate to its minimum");
}

TEST(Verl, ReportsWhySettingsHaveNoEffect) {
  EXPECT_THAT(
      ReadActor("fsdp_config: {param_offload: true, offload_policy: true, "
                "use_orig_params: true}")
          .findings,
      ElementsAre(HasSubstr("param_offload has no effect: verl moves it "
                            "between the phases of a step"),
                  HasSubstr("use_orig_params has no effect"),
                  HasSubstr("offload_policy has no effect: verl reads it for "
                            "strategy: fsdp2 alone")));
  EXPECT_THAT(ReadActor("optim: {lr_warmup_steps: 10}").findings,
              ElementsAre(HasSubstr("verl changes the rate once in a round of "
                                    "generation")));
}

TEST(Verl, ReadsWrapPolicies) {
  const auto read = [](const char* policy) {
    return ReadActor(
        absl::StrCat("fsdp_config: {wrap_policy: {", policy, "}}"));
  };
  EXPECT_EQ(*read("min_num_params: 0").config.sharding.auto_wrap_policy,
            AutoWrapPolicy::kTransformerBasedWrap);
  const Reading sized = read("min_num_params: 1000");
  EXPECT_EQ(*sized.config.sharding.auto_wrap_policy,
            AutoWrapPolicy::kSizeBasedWrap);
  EXPECT_EQ(*sized.config.sharding.min_num_params, 1000);
  EXPECT_EQ(*read("disable: true").config.sharding.auto_wrap_policy,
            AutoWrapPolicy::kNoWrap);
}

}  // namespace
}  // namespace fsdp::config
