// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/dialects/axolotl/axolotl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr absl::string_view kModel = "base_model: m\n";

Reading ReadAxolotlText(absl::string_view text) {
  return ReadWith(&ReadAxolotl, "run.yaml", Syntax::kYaml,
                  absl::StrCat(kModel, text));
}

TEST(Axolotl, ReadsAccelerateOptionsWithAndWithoutPrefix) {
  for (const absl::string_view prefix : {"", "fsdp_"}) {
    const Reading reading = ReadAxolotlText(
        absl::StrCat("fsdp_version: 2\nbf16: auto\nfsdp_config:\n  ", prefix,
                     "offload_params: true\n  ", prefix,
                     "cpu_ram_efficient_loading: true\n  ", prefix,
                     "auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  ", prefix,
                     "transformer_layer_cls_to_wrap: LlamaDecoderLayer\n  ",
                     prefix, "state_dict_type: SHARDED_STATE_DICT\n  ", prefix,
                     "reshard_after_forward: false\n"));
    EXPECT_THAT(reading.findings, Each(Not(StartsWith("problem"))));
    const TrainConfig& config = reading.config;
    EXPECT_EQ(*config.sharding.fsdp_version, 2);
    EXPECT_EQ(*config.sharding.reshard_after_forward, ReshardSetting(false));
    EXPECT_TRUE(*config.sharding.cpu_offload);
    EXPECT_TRUE(*config.checkpoint.cpu_ram_efficient_loading);
    EXPECT_EQ(*config.checkpoint.state_dict_type,
              StateDictType::kShardedStateDict);
    EXPECT_THAT(*config.sharding.transformer_layer_cls_to_wrap,
                ElementsAre("LlamaDecoderLayer"));
    EXPECT_EQ(*config.precision.param_dtype, dcp::DType::kBFloat16);
    EXPECT_EQ(*config.precision.reduce_dtype, dcp::DType::kBFloat16);
  }
}

TEST(Axolotl, DefaultVersionIs1) {
  const Reading reading = ReadAxolotlText(
      "fsdp: [full_shard, auto_wrap]\n"
      "fsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP}\n");
  EXPECT_EQ(*reading.config.sharding.fsdp_version, 1);
  EXPECT_EQ(*reading.config.sharding.reshard_after_forward,
            ReshardSetting(false));
  EXPECT_EQ(*reading.config.checkpoint.state_dict_type,
            StateDictType::kFullStateDict);
}

TEST(Axolotl, TrainsCopiesWithoutOptions) {
  const Reading reading = ReadAxolotlText("bf16: true\nmicro_batch_size: 2\n");
  EXPECT_EQ(*reading.config.mesh.data_parallel_shard_degree, 1);
  EXPECT_EQ(*reading.config.precision.reduce_dtype, dcp::DType::kFloat32);
  EXPECT_THAT(reading.findings, Contains(HasSubstr("has no fsdp_config")));
}

TEST(Axolotl, ReadsDegreesAndLoopSettings) {
  const Reading reading = ReadAxolotlText(
      "dp_shard_size: 4\ndp_replicate_size: 2\ntensor_parallel_size: 2\n"
      "context_parallel_size: 4\n"
      "fsdp_version: 2\nfsdp_config: {offload_params: false}\n"
      "micro_batch_size: 3\ngradient_accumulation_steps: 5\n"
      "sequence_len: 4096\nlearning_rate: 2e-5\nseed: 7\nmax_steps: 90\n"
      "optimizer: adamw_torch_fused\noutput_dir: out\nsave_steps: 30\n"
      "gradient_checkpointing: true\n");
  EXPECT_THAT(reading.findings, Each(Not(StartsWith("problem"))));
  const TrainConfig& config = reading.config;
  EXPECT_EQ(*config.mesh.data_parallel_shard_degree, 4);
  EXPECT_EQ(*config.mesh.data_parallel_replicate_degree, 2);
  EXPECT_EQ(*config.mesh.tensor_parallel_degree, 2);
  EXPECT_EQ(*config.mesh.context_parallel_degree, 4);
  EXPECT_EQ(*ReadAxolotlText("sequence_parallel_degree: 2\n")
                 .config.mesh.context_parallel_degree,
            2);
  EXPECT_EQ(*config.loop.local_batch_size, 3);
  EXPECT_EQ(*config.loop.gradient_accumulation_steps, 5);
  EXPECT_EQ(*config.loop.seq_len, 4096);
  EXPECT_EQ(*config.loop.lr, 2e-5);
  EXPECT_EQ(*config.loop.seed, 7);
  EXPECT_EQ(*config.loop.steps, 90);
  // The default in TrainingArguments.
  EXPECT_EQ(*config.loop.weight_decay, 0.0);
  EXPECT_EQ(*config.loop.max_norm, 1.0);
  EXPECT_EQ(*config.loop.beta2, 0.999);
  EXPECT_EQ(*config.checkpoint.folder, "out");
  EXPECT_EQ(*config.checkpoint.interval, 30);
  EXPECT_EQ(*config.sharding.activation_checkpointing, 1);
}

// Reads the activation settings of a config sharded by FSDP2.
Reading ReadActivations(absl::string_view text) {
  return ReadAxolotlText(absl::StrCat(
      "fsdp_version: 2\nfsdp_config: {offload_params: false}\n", text, "\n"));
}

TEST(Axolotl, OffloadsActivationsForOldAndNewOptions) {
  struct Row {
    const char* text;
    int64_t recomputes;
    bool offloads;
  };
  for (const Row& row :
       {Row{"gradient_checkpointing: true", 1, false},
        Row{"gradient_checkpointing: false", 0, false},
        Row{"gradient_checkpointing: offload", 1, true},
        Row{"gradient_checkpointing: unsloth", 1, true},
        Row{"gradient_checkpointing: true\nactivation_offloading: true", 1,
            true},
        Row{"gradient_checkpointing: true\nactivation_offloading: legacy", 1,
            true},
        Row{"gradient_checkpointing: true\nactivation_offloading: "
            "hidden_states",
            1, true},
        Row{"gradient_checkpointing: true\nactivation_offloading: false", 1,
            false}}) {
    const Reading reading = ReadActivations(row.text);
    EXPECT_THAT(reading.findings, Each(Not(HasSubstr("activation"))))
        << row.text;
    EXPECT_THAT(reading.findings, Each(Not(HasSubstr("gradient"))));
    const ShardingConfig& sharding = reading.config.sharding;
    EXPECT_EQ(*sharding.activation_checkpointing, row.recomputes) << row.text;
    EXPECT_EQ(*sharding.activation_cpu_offload, row.offloads) << row.text;
  }
}

TEST(Axolotl, KeepsDiskActivationsInMemory) {
  for (const char* text :
       {"gradient_checkpointing: offload_disk",
        "gradient_checkpointing: true\nactivation_offloading: disk"}) {
    const Reading reading = ReadActivations(text);
    EXPECT_TRUE(*reading.config.sharding.activation_cpu_offload);
    EXPECT_EQ(*reading.config.sharding.activation_checkpointing, 1);
    EXPECT_THAT(reading.findings,
                Contains(AllOf(StartsWith("changed"), HasSubstr("to a disk"))));
  }
}

TEST(Axolotl, RefusesUnknownActivationValues) {
  const Reading reading = ReadActivations(
      "gradient_checkpointing: offlaod\nactivation_offloading: gpu");
  EXPECT_THAT(
      reading.findings,
      AllOf(Contains(AllOf(StartsWith("problem"),
                           HasSubstr("did you mean offload?"))),
            Contains(AllOf(StartsWith("problem"),
                           HasSubstr("activation_offloading is 'gpu'")))));
  EXPECT_FALSE(*reading.config.sharding.activation_cpu_offload);
}

TEST(Axolotl, RefusesFloat8WithAdvice) {
  EXPECT_THAT(ReadAxolotlText("fp8: true\n").findings,
              Contains(AllOf(StartsWith("problem run.yaml:2: fp8 is true"),
                             HasSubstr("write bf16: true"),
                             HasSubstr("fsdp::float8_all_gather"))));
}

TEST(Axolotl, ReportsThatAdaptersHaveNoEffect) {
  const Reading reading =
      ReadAxolotlText("adapter: qlora\nload_in_4bit: true\n");
  EXPECT_THAT(reading.findings,
              AllOf(Contains(HasSubstr("adapter has no effect")),
                    Contains(HasSubstr("load_in_4bit has no effect"))));
}

TEST(Axolotl, RefusesUnsupportedSettingsByName) {
  EXPECT_THAT(
      ReadAxolotlText("deepspeed: zero3.json\ncontext_parallel_size: 2\n"
                      "sequence_parallel_degree: 2\noptimizer: lion_8bit\n")
          .findings,
      AllOf(Contains(HasSubstr("deepspeed is 'zero3.json'")),
            Contains(AllOf(HasSubstr("sequence_parallel_degree"),
                           HasSubstr("context_parallel_size"))),
            Contains(HasSubstr("optimizer is lion_8bit"))));
}

}  // namespace
}  // namespace fsdp::config
