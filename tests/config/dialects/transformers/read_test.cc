// SPDX-License-Identifier: Apache-2.0
// Reading and writing TrainingArguments and fsdp_config.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/dialects/transformers/transformers.h"
#include "config/document/document.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct TransformersReading {
  TrainConfig config;
  Findings findings;
};

TransformersReading ReadTransformersText(absl::string_view text) {
  TransformersReading read;
  const Node root = ParseDocument("f.json", text, Syntax::kJson, read.findings);
  ReadTransformers(root, read.config, read.findings);
  return read;
}

TransformersReading ReadTransformersOptions(absl::string_view options) {
  return ReadTransformersText(
      absl::StrCat("{\"fsdp\": true, \"fsdp_config\": {", options, "}}"));
}

std::vector<std::string> Problems(const TransformersReading& read) {
  std::vector<std::string> texts;
  for (const Finding& finding : read.findings.list()) {
    if (finding.kind == Finding::Kind::kProblem) {
      texts.push_back(to_string(finding));
    }
  }
  return texts;
}

TEST(Transformers, DefaultsAreVersion2TransformerWrapAndFullStateDict) {
  const TransformersReading read = ReadTransformersOptions("");
  EXPECT_THAT(read.findings.list(), IsEmpty());
  EXPECT_EQ(*read.config.sharding.fsdp_version, 2);
  EXPECT_EQ(*read.config.sharding.reshard_after_forward, ReshardSetting(true));
  EXPECT_EQ(*read.config.sharding.auto_wrap_policy,
            AutoWrapPolicy::kTransformerBasedWrap);
  EXPECT_EQ(*read.config.checkpoint.state_dict_type,
            StateDictType::kFullStateDict);
}

TEST(Transformers, OptionsAreReadWithAndWithoutPrefix) {
  const TransformersReading read = ReadTransformersOptions(
      R"("version": 2, "reshard_after_forward": false, "cpu_offload": true,
         "fsdp_cpu_ram_efficient_loading": "true",
         "state_dict_type": "SHARDED_STATE_DICT",
         "activation_checkpointing": true,
         "transformer_layer_cls_to_wrap": ["A", "B"], "min_num_params": 0)");
  EXPECT_THAT(read.findings.list(), IsEmpty());
  const TrainConfig& config = read.config;
  EXPECT_EQ(*config.sharding.reshard_after_forward, ReshardSetting(false));
  EXPECT_TRUE(*config.sharding.cpu_offload);
  EXPECT_TRUE(*config.checkpoint.cpu_ram_efficient_loading);
  EXPECT_EQ(*config.checkpoint.state_dict_type,
            StateDictType::kShardedStateDict);
  EXPECT_EQ(*config.sharding.activation_checkpointing, 1);
  EXPECT_THAT(*config.sharding.transformer_layer_cls_to_wrap,
              ElementsAre("A", "B"));
}

TEST(Transformers, AutoWrapPolicyIsOneOfThree) {
  EXPECT_EQ(*ReadTransformersOptions(R"("auto_wrap_policy": "SIZE_BASED_WRAP",
                            "min_num_params": 2000)")
                 .config.sharding.auto_wrap_policy,
            AutoWrapPolicy::kSizeBasedWrap);
  EXPECT_EQ(*ReadTransformersOptions(R"("auto_wrap_policy": "SIZE_BASED_WRAP")")
                 .config.sharding.auto_wrap_policy,
            AutoWrapPolicy::kNoWrap);
  EXPECT_EQ(*ReadTransformersOptions(R"("auto_wrap_policy": "NO_WRAP")")
                 .config.sharding.auto_wrap_policy,
            AutoWrapPolicy::kNoWrap);
  EXPECT_THAT(
      Problems(ReadTransformersOptions(R"("auto_wrap_policy": "LAYERS")")),
      ElementsAre(HasSubstr("SIZE_BASED_WRAP")));
}

TEST(Transformers, FsdpConfigMayBeTheWholeFile) {
  const TransformersReading read =
      ReadTransformersText(R"({"version": 1, "cpu_offload": true,
                                 "reshard_after_forward": "shard_grad_op"})");
  EXPECT_THAT(Problems(read), IsEmpty());
  EXPECT_EQ(*read.config.sharding.fsdp_version, 1);
  EXPECT_EQ(*read.config.sharding.reshard_after_forward, ReshardSetting(false));
}

TEST(Transformers, RefusesXlaByName) {
  EXPECT_THAT(
      Problems(ReadTransformersOptions(R"("xla": true, "xla_fsdp_v2": true,
      "xla_fsdp_grad_ckpt": true, "xla_fsdp_settings": {"a": 1})")),
      ElementsAre(HasSubstr("fsdp_config.xla is"), HasSubstr("xla_fsdp_v2"),
                  HasSubstr("xla_fsdp_grad_ckpt"),
                  HasSubstr("xla_fsdp_settings")));
  EXPECT_THAT(Problems(ReadTransformersOptions(R"("xla": false,
      "xla_fsdp_grad_ckpt": false, "xla_fsdp_settings": {})")),
              IsEmpty());
}

TEST(Transformers, RefusesActivationAndGradientCheckpointingTogether) {
  const TransformersReading both =
      ReadTransformersText(R"({"gradient_checkpointing": true,
      "fsdp": true, "fsdp_config": {"activation_checkpointing": true}})");
  EXPECT_THAT(
      Problems(both),
      ElementsAre(
          AllOf(HasSubstr("f.json:1: gradient_checkpointing"),
                HasSubstr("f.json:2: fsdp_config.activation_checkpointing"))));
  const TransformersReading one =
      ReadTransformersText(R"({"gradient_checkpointing": true,
      "fsdp": true, "fsdp_config": {"activation_checkpointing": false}})");
  EXPECT_THAT(Problems(one), IsEmpty());
  EXPECT_EQ(*one.config.sharding.activation_checkpointing, 1);
}

TEST(Transformers, OffloadsActivationsOnlyForTrlsOption) {
  for (const bool value : {true, false}) {
    const TransformersReading read = ReadTransformersText(absl::StrCat(
        R"({"output_dir": "x", "fsdp": true, "activation_offloading": )",
        value ? "true}" : "false}"));
    EXPECT_THAT(read.findings.list(), IsEmpty());
    EXPECT_EQ(*read.config.sharding.activation_cpu_offload, value);
  }
  const TransformersReading both =
      ReadTransformersText(R"({"activation_offloading": false, "fsdp": true,
      "fsdp_config": {"activation_checkpointing_offload": true}})");
  EXPECT_FALSE(*both.config.sharding.activation_cpu_offload);
  ASSERT_EQ(both.findings.list().size(), 1u);
  EXPECT_THAT(to_string(both.findings.list()[0]),
              HasSubstr("transformers does not hand it to accelerate"));
}

TEST(Transformers, WithoutFsdpThereAreOnlyCopies) {
  for (const absl::string_view off :
       {R"("fsdp": false)", R"("fsdp": "")", R"("fsdp": [])", R"("fsdp": null)",
        R"("learning_rate": 1e-4)"}) {
    const TransformersReading read = ReadTransformersText(
        absl::StrCat(R"({"output_dir": "x", "bf16": true, )", off, "}"));
    EXPECT_THAT(Problems(read), IsEmpty()) << off;
    EXPECT_EQ(*read.config.mesh.data_parallel_shard_degree, 1) << off;
    EXPECT_EQ(*read.config.mesh.data_parallel_replicate_degree,
              kReplicateOverRest);
    EXPECT_EQ(*read.config.precision.param_dtype, dcp::DType::kBFloat16);
    EXPECT_EQ(*read.config.precision.reduce_dtype, dcp::DType::kFloat32);
    ASSERT_FALSE(read.findings.list().empty()) << off;
    EXPECT_THAT(read.findings.list()[0].text, HasSubstr("the whole model"));
  }
  EXPECT_EQ(*ReadTransformersText(R"({"output_dir": "x", "fsdp": true})")
                 .config.mesh.data_parallel_shard_degree,
            kShardOverRest);
}

TEST(Transformers, FsdpConfigWithoutFsdpHasNoEffect) {
  for (const absl::string_view options :
       {R"({"cpu_offload": true, "no_such_option": 1})", R"("f.json")"}) {
    const TransformersReading read = ReadTransformersText(
        absl::StrCat(R"({"output_dir": "x", "fsdp_config": )", options, "}"));
    EXPECT_THAT(Problems(read), IsEmpty());
    EXPECT_EQ(*read.config.mesh.data_parallel_shard_degree, 1);
    EXPECT_FALSE(*read.config.sharding.cpu_offload);
    EXPECT_THAT(to_string(read.findings.list()[1]),
                HasSubstr("fsdp_config has no effect"));
  }
}

TEST(Transformers, RefusesShardsWithoutFsdp) {
  EXPECT_THAT(Problems(ReadTransformersText(R"({"output_dir": "x",
      "parallelism_config": {"dp_shard_size": 4}})")),
              ElementsAre(HasSubstr("fsdp: true")));
}

TEST(Transformers, RefusesOtherOptimizers) {
  for (const absl::string_view name :
       {"adamw_torch", "adamw_torch_fused", "paged_adamw_8bit"}) {
    EXPECT_THAT(Problems(ReadTransformersText(absl::StrCat(
                    R"({"fsdp": true, "optim": ")", name, R"("})"))),
                IsEmpty());
  }
  EXPECT_THAT(
      Problems(ReadTransformersText(R"({"fsdp": true, "optim": "adafactor"})")),
      ElementsAre(HasSubstr("optim is adafactor")));
}

TEST(Transformers, ReadsOlderFsdpWords) {
  for (const absl::string_view words :
       {R"("shard_grad_op auto_wrap offload")",
        R"(["shard_grad_op", "auto_wrap", "offload"])"}) {
    const TransformersReading read =
        ReadTransformersText(absl::StrCat("{\"fsdp\": ", words, "}"));
    EXPECT_THAT(Problems(read), IsEmpty());
    EXPECT_EQ(*read.config.sharding.reshard_after_forward,
              ReshardSetting(false));
    EXPECT_TRUE(*read.config.sharding.cpu_offload);
  }
  EXPECT_THAT(Problems(ReadTransformersText(R"({"fsdp": "hybrid_shard"})")),
              ElementsAre(HasSubstr("FSDP1")));
  EXPECT_THAT(Problems(ReadTransformersText(R"({"fsdp": "fully"})")),
              ElementsAre(HasSubstr("full_shard")));
}

TEST(Transformers, Bf16AndFp16AreMixedPrecision) {
  EXPECT_EQ(*ReadTransformersText(R"({"fsdp": true, "bf16": true})")
                 .config.precision.reduce_dtype,
            dcp::DType::kBFloat16);
  EXPECT_THAT(Problems(ReadTransformersText(R"({"fsdp": true, "bf16": true,
                                    "fp16": true})")),
              ElementsAre(HasSubstr("keep one")));
}

TEST(Transformers, ReadsLoopAndCheckpointArguments) {
  const TransformersReading read =
      ReadTransformersText(R"({"output_dir": "runs", "max_steps": 100,
      "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2,
      "learning_rate": 8e-4, "weight_decay": 0.1, "max_grad_norm": 1,
      "seed": 42, "save_steps": 10, "save_total_limit": 3, "fsdp": true,
      "logging_steps": 5, "report_to": "none"})");
  EXPECT_THAT(Problems(read), IsEmpty());
  EXPECT_EQ(read.findings.list().size(), 1u);
  EXPECT_EQ(*read.config.checkpoint.folder, "runs");
  EXPECT_EQ(*read.config.checkpoint.interval, 10);
  EXPECT_EQ(*read.config.checkpoint.keep_latest_k, 3);
  EXPECT_EQ(*read.config.loop.steps, 100);
  EXPECT_EQ(*read.config.loop.local_batch_size, 4);
  EXPECT_EQ(*read.config.loop.gradient_accumulation_steps, 2);
  EXPECT_EQ(*read.config.loop.lr, 8e-4);
  EXPECT_EQ(*read.config.loop.max_norm, 1.0);
  EXPECT_EQ(*read.config.loop.seed, 42);
}

// TrainingArguments' defaults, which a custom loop would not have.
TEST(Transformers, LoopHasTransformersDefaults) {
  const LoopConfig loop = ReadTransformersText(R"({"fsdp": true})").config.loop;
  EXPECT_EQ(*loop.lr, 5e-5);
  EXPECT_EQ(*loop.max_norm, 1.0);
  EXPECT_EQ(*loop.seed, 42);
  EXPECT_EQ(*loop.beta1, 0.9);
  EXPECT_EQ(*loop.beta2, 0.999);
  EXPECT_EQ(*loop.eps, 1e-8);
  EXPECT_EQ(*loop.weight_decay, 0.0);
  EXPECT_EQ(**loop.lr_schedule, LrSchedule{.decay = LrDecay::kLinear});
  // A file that has only such options says nothing about the loop.
  EXPECT_EQ(*ReadTransformersText(R"({"version": 2})").config.loop.lr,
            std::nullopt);
}

TEST(Transformers, SchedulesAreRead) {
  const auto schedule = [](absl::string_view keys) {
    return **ReadTransformersText(
                 absl::StrCat(R"({"fsdp": true, "learning_rate": 1e-4, )", keys,
                              "}"))
                 .config.loop.lr_schedule;
  };
  EXPECT_EQ(schedule(R"("lr_scheduler_type": "cosine", "warmup_steps": 10)"),
            (LrSchedule{.decay = LrDecay::kCosine, .warmup_steps = 10}));
  EXPECT_EQ(schedule(R"("warmup_ratio": 0.1)"),
            (LrSchedule{.decay = LrDecay::kLinear, .warmup_ratio = 0.1}));
  EXPECT_EQ(schedule(R"("warmup_steps": 0.25)"),
            (LrSchedule{.decay = LrDecay::kLinear, .warmup_ratio = 0.25}));
  EXPECT_EQ(schedule(R"("lr_scheduler_type": "cosine_with_min_lr",
                        "lr_scheduler_kwargs": {"min_lr": 2e-5})"),
            (LrSchedule{.decay = LrDecay::kCosine, .min_factor = 0.2}));
  EXPECT_EQ(schedule(R"("lr_scheduler_type": "constant", "warmup_steps": 5)"),
            LrSchedule());
  EXPECT_THAT(
      Problems(ReadTransformersText(
          R"({"fsdp": true, "lr_scheduler_type": "polynomial"})")),
      ElementsAre(HasSubstr("lr_scheduler_type is 'polynomial', not linear")));
}

TEST(Transformers, ReportsUnknownOptions) {
  EXPECT_THAT(
      Problems(ReadTransformersOptions(R"("reshard_after_foward": true)")),
      ElementsAre(HasSubstr("did you mean")));
  EXPECT_THAT(Problems(ReadTransformersText(R"({"fsdp": true,
      "gradient_acumulation_steps": 2})")),
              ElementsAre(HasSubstr("gradient_accumulation_steps")));
}

TEST(Transformers, RefusesOtherFilesAndDeepSpeed) {
  EXPECT_THAT(
      Problems(ReadTransformersText(R"({"fsdp": true, "fsdp_config": "f.json",
                                    "deepspeed": "d.json"})")),
      ElementsAre(HasSubstr("another file"), HasSubstr("DeepSpeed")));
}

TEST(Transformers, WrittenConfigReadsBackUnchanged) {
  TransformersReading read =
      ReadTransformersText(R"({"output_dir": "a\"b", "save_strategy": "no",
      "max_steps": 9, "learning_rate": 1e-5, "fsdp": true, "fp16": true,
      "fsdp_config": {"reshard_after_forward": false, "min_num_params": 7,
        "auto_wrap_policy": "SIZE_BASED_WRAP", "ignored_modules": "x.*"},
      "parallelism_config": {"dp_replicate_size": 2, "dp_shard_size": 2,
        "tp_size": 2, "cp_size": 4}})");
  EXPECT_THAT(Problems(read), IsEmpty());
  EXPECT_EQ(*read.config.mesh.context_parallel_degree, 4);
  Findings findings;
  const TransformersReading again =
      ReadTransformersText(WriteTransformers(read.config, findings));
  EXPECT_THAT(findings.list(), IsEmpty());
  EXPECT_THAT(Problems(again), IsEmpty());
  EXPECT_TRUE(same_training(read.config, again.config));
}

}  // namespace
}  // namespace fsdp::config
