// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "config/dialects/torchtitan/torchtitan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using dcp::DType;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

Reading ReadTorchTitanText(absl::string_view text) {
  return ReadWith(&ReadTorchTitan, "run.toml", Syntax::kToml, text);
}

TEST(TorchTitan, EmptyFilesHaveTorchTitansDefaults) {
  const Reading reading = ReadTorchTitanText("");
  EXPECT_THAT(reading.findings, IsEmpty());
  const TrainConfig& config = reading.config;
  EXPECT_EQ(*config.mesh.data_parallel_shard_degree, kShardOverRest);
  EXPECT_EQ(*config.mesh.data_parallel_replicate_degree, 1);
  EXPECT_EQ(*config.precision.param_dtype, DType::kBFloat16);
  EXPECT_EQ(*config.precision.reduce_dtype, DType::kFloat32);
  EXPECT_EQ(*config.sharding.reshard_after_forward, ReshardSetting());
  EXPECT_EQ(*config.sharding.auto_wrap_policy,
            AutoWrapPolicy::kTransformerBasedWrap);
  EXPECT_EQ(*config.sharding.activation_checkpointing, 2);
  EXPECT_EQ(*config.checkpoint.folder, "");
  EXPECT_EQ(*config.checkpoint.interval, 0);
  EXPECT_EQ(*config.loop.steps, 10'000);
  EXPECT_EQ(*config.loop.lr, 8e-4);
  EXPECT_EQ(*config.loop.max_norm, 1.0);
}

TEST(TorchTitan, ShardDegreeMinusOneMeansTheRest) {
  const Reading reading = ReadTorchTitanText(R"(
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 4
)");
  EXPECT_THAT(reading.findings, IsEmpty());
  EXPECT_EQ(*reading.config.mesh.data_parallel_replicate_degree, 2);
  EXPECT_EQ(*reading.config.mesh.data_parallel_shard_degree, kShardOverRest);
  EXPECT_EQ(*reading.config.mesh.tensor_parallel_degree, 4);
  EXPECT_EQ(reading.config.mesh.data_parallel_shard_degree.place()->line, 4);
}

TEST(TorchTitan, OldDdpTypeTrainsCopies) {
  const Reading reading =
      ReadTorchTitanText("[training]\ndata_parallel_type = 'ddp'\n");
  EXPECT_EQ(*reading.config.mesh.data_parallel_shard_degree, 1);
  EXPECT_THAT(reading.findings, ElementsAre(HasSubstr("the whole model")));
}

TEST(TorchTitan, RefusesOtherOptimizers) {
  EXPECT_THAT(ReadTorchTitanText("[optimizer]\nname = 'AdamW'\n").findings,
              IsEmpty());
  EXPECT_THAT(ReadTorchTitanText("[optimizer]\nname = 'Muon'\n").findings,
              ElementsAre(HasSubstr("optimizer.name is Muon")));
}

TEST(TorchTitan, ReadsSchedulesBetasAndEps) {
  const Reading bare = ReadTorchTitanText("");
  EXPECT_EQ(**bare.config.loop.lr_schedule,
            (LrSchedule{.decay = LrDecay::kLinear,
                        .warmup_steps = 200,
                        .counts_from_one = true}));
  EXPECT_EQ(*bare.config.loop.beta2, 0.95);
  const Reading reading = ReadTorchTitanText(R"(
[optimizer]
beta1 = 0.8
eps = 1e-6
[lr_scheduler]
warmup_steps = 7
decay_ratio = 0.8
decay_type = "cosine"
min_lr_factor = 0.1
)");
  EXPECT_THAT(reading.findings, IsEmpty());
  EXPECT_EQ(*reading.config.loop.beta1, 0.8);
  EXPECT_EQ(*reading.config.loop.eps, 1e-6);
  EXPECT_EQ(**reading.config.loop.lr_schedule,
            (LrSchedule{.decay = LrDecay::kCosine,
                        .warmup_steps = 7,
                        .min_factor = 0.1,
                        .decay_ratio = 0.8,
                        .counts_from_one = true}));
  // Before 0.1.
  EXPECT_EQ((*ReadTorchTitanText("[training]\nwarmup_steps = 9\n")
                  .config.loop.lr_schedule)
                ->warmup_steps,
            9);
}

TEST(TorchTitan, RefusesInvalidDegrees) {
  EXPECT_THAT(
      ReadTorchTitanText(R"(
[parallelism]
data_parallel_replicate_degree = -1
data_parallel_shard_degree = 0
tensor_parallel_degree = "two"
)")
          .findings,
      UnorderedElementsAre(
          AllOf(HasSubstr("run.toml:3: "), HasSubstr("is -1, not")),
          AllOf(HasSubstr("run.toml:4: "), HasSubstr("is 0, not -1")),
          AllOf(HasSubstr("run.toml:5: "), HasSubstr("is 'two', not"))));
}

TEST(TorchTitan, ReshardAfterForwardHasThreeValues) {
  const auto reshard = [](absl::string_view word) {
    return *ReadTorchTitanText(
                absl::StrCat("[parallelism]\nfsdp_reshard_after_forward = '",
                             word, "'"))
                .config.sharding.reshard_after_forward;
  };
  EXPECT_EQ(reshard("default"), ReshardSetting());
  EXPECT_EQ(reshard("always"), ReshardSetting(true));
  EXPECT_EQ(reshard("never"), ReshardSetting(false));
  EXPECT_THAT(
      ReadTorchTitanText("[parallelism]\nfsdp_reshard_after_forward = 'often'")
          .findings,
      ElementsAre(HasSubstr("is 'often', not default, always or never")));
}

TEST(TorchTitan, MixedPrecisionBecomesAPolicy) {
  const auto precision = [](absl::string_view keys) {
    return ReadTorchTitanText(absl::StrCat("[training]\n", keys))
        .config.precision;
  };
  const PrecisionConfig whole = precision("mixed_precision_param = 'float32'");
  EXPECT_EQ(*whole.param_dtype, std::nullopt);
  EXPECT_EQ(*whole.reduce_dtype, std::nullopt);
  const PrecisionConfig half = precision("dtype = 'bfloat16'");
  EXPECT_EQ(*half.dtype, DType::kBFloat16);
  EXPECT_EQ(*half.param_dtype, std::nullopt);
  EXPECT_EQ(*half.reduce_dtype, DType::kFloat32);
  EXPECT_THAT(ReadTorchTitanText("[training]\nmixed_precision_param = 'float8'")
                  .findings,
              ElementsAre(HasSubstr("is 'float8', not bfloat16 or float32")));
}

TEST(TorchTitan, ReadsActivationCheckpointingForSomeLayers) {
  const auto every = [](absl::string_view keys) {
    return *ReadTorchTitanText(absl::StrCat("[activation_checkpoint]\n", keys))
                .config.sharding.activation_checkpointing;
  };
  EXPECT_EQ(every("mode = 'none'"), 0);
  EXPECT_EQ(every("mode = 'full'"), 1);
  EXPECT_EQ(every("mode = 'selective'\nselective_ac_option = '3'"), 3);
  EXPECT_EQ(every("selective_ac_option = 4"), 4);
  EXPECT_EQ(every("mode = 'none'\nselective_ac_option = '3'"), 0);
  for (const char* keys :
       {"mode = 'memory_budget'", "selective_ac_option = 'op'"}) {
    EXPECT_EQ(every(keys), 1);
    EXPECT_THAT(
        ReadTorchTitanText(absl::StrCat("[activation_checkpoint]\n", keys))
            .findings,
        ElementsAre(AllOf(StartsWith("changed run.toml:2: "),
                          HasSubstr("the same numbers"))));
  }
  EXPECT_THAT(
      ReadTorchTitanText("[activation_checkpoint]\nselective_ac_option = '0'")
          .findings,
      ElementsAre(StartsWith("problem ")));
}

TEST(TorchTitan, CheckpointFolderIsBelowTheDumpFolder) {
  const Reading reading = ReadTorchTitanText(R"(
[job]
dump_folder = "runs/a"
[checkpoint]
enable = true
folder = "steps"
interval = 20
async_mode = "async_with_pinned_mem"
keep_latest_k = 3
export_dtype = "bfloat16"
initial_load_path = "base"
)");
  EXPECT_THAT(reading.findings, IsEmpty());
  const CheckpointConfig& checkpoint = reading.config.checkpoint;
  EXPECT_EQ(*checkpoint.folder, "runs/a/steps");
  EXPECT_EQ(*checkpoint.interval, 20);
  EXPECT_TRUE(*checkpoint.async);
  EXPECT_EQ(*checkpoint.keep_latest_k, 3);
  EXPECT_TRUE(*checkpoint.last_save_model_only);
  EXPECT_EQ(*checkpoint.export_dtype, DType::kBFloat16);
  EXPECT_EQ(*checkpoint.initial_load_path, "base");
  EXPECT_EQ(*checkpoint.state_dict_type, StateDictType::kShardedStateDict);
}

TEST(TorchTitan, EnabledCheckpointsHaveTorchTitansDefaults) {
  const CheckpointConfig checkpoint =
      ReadTorchTitanText("[checkpoint]\nenable = true").config.checkpoint;
  EXPECT_EQ(*checkpoint.folder, "./outputs/checkpoint");
  EXPECT_EQ(*checkpoint.interval, 500);
  EXPECT_EQ(*checkpoint.keep_latest_k, 10);
  EXPECT_TRUE(*checkpoint.last_save_model_only);
}

TEST(TorchTitan, LoadOnlyCheckpointsHaveNoFolder) {
  const CheckpointConfig checkpoint =
      ReadTorchTitanText(
          "[checkpoint]\nenable = true\nload_only = true\n"
          "initial_load_path = 'base'")
          .config.checkpoint;
  EXPECT_EQ(*checkpoint.folder, "");
  EXPECT_EQ(*checkpoint.initial_load_path, "base");
}

TEST(TorchTitan, LoadPathHasNoEffectWithoutCheckpoints) {
  const Reading reading =
      ReadTorchTitanText("[checkpoint]\ninitial_load_path = 'base'");
  EXPECT_EQ(*reading.config.checkpoint.initial_load_path, "");
  EXPECT_THAT(reading.findings,
              ElementsAre(AllOf(StartsWith("ignored "),
                                HasSubstr("checkpoint.enable is false"))));
}

TEST(TorchTitan, ReadsOlderSpellings) {
  const Reading reading = ReadTorchTitanText(R"(
[training]
seed = 7
[checkpoint]
enable_checkpoint = true
last_save_model_weights_only = false
initial_load_model_weights_only = true
[memory_estimation]
enabled = false
)");
  EXPECT_EQ(*reading.config.checkpoint.folder, "./outputs/checkpoint");
  EXPECT_FALSE(*reading.config.checkpoint.last_save_model_only);
  EXPECT_EQ(*reading.config.loop.seed, 7);
  // In that version the last save was complete by default.
  EXPECT_FALSE(*ReadTorchTitanText("[checkpoint]\nenable_checkpoint = true")
                    .config.checkpoint.last_save_model_only);
}

TEST(TorchTitan, RefusesBothSpellingsTogether) {
  EXPECT_THAT(ReadTorchTitanText(
                  "[checkpoint]\nenable = true\nenable_checkpoint = true")
                  .findings,
              ElementsAre(AllOf(StartsWith("problem run.toml:3: "),
                                HasSubstr("is another name of enable"))));
}

TEST(TorchTitan, RefusesFloat8WithAdvice) {
  EXPECT_THAT(
      ReadTorchTitanText("[model]\nconverters = ['quantize.linear.float8']")
          .findings,
      ElementsAre(AllOf(StartsWith("problem run.toml:2: model.converters is "),
                        HasSubstr("leave it out"),
                        HasSubstr("fsdp::float8_all_gather"))));
  EXPECT_THAT(
      ReadTorchTitanText("[float8]\nenable_float8_linear = true").findings,
      Contains(AllOf(
          StartsWith("problem run.toml:2: float8.enable_float8_linear "),
          HasSubstr("leave it out"), HasSubstr("fsdp::float8_all_gather"))));
  EXPECT_THAT(ReadTorchTitanText("[model]\nconverters = []").findings,
              IsEmpty());
  EXPECT_THAT(
      ReadTorchTitanText("[model]\nconverters = ['quantize.linear.mx']")
          .findings,
      ElementsAre(AllOf(HasSubstr("the program makes its model"),
                        HasSubstr("leave it out"), Not(HasSubstr("float8")))));
}

TEST(TorchTitan, RefusesSettingsThatChangeTraining) {
  for (const char* text :
       {"[checkpoint]\nload_step = 10", "[checkpoint]\nkeep_latest_k = 1",
        "[checkpoint]\nexclude_from_loading = ['optimizer']",
        "[checkpoint]\ncreate_seed_checkpoint = true",
        "[checkpoint]\ninitial_load_in_hf_quantized = true",
        "[fault_tolerance]\nenable = true", "[training]\nlocal_batch_size = 0",
        "[training]\nglobal_batch_size = 0", "[training]\nmax_norm = -1"}) {
    EXPECT_THAT(ReadTorchTitanText(text).findings,
                ElementsAre(StartsWith("problem run.toml:2: ")))
        << text;
  }
}

TEST(TorchTitan, SuggestsTheNearestKnownKey) {
  EXPECT_THAT(ReadTorchTitanText(R"(
[parallelism]
data_parallel_sharding_degree = 2
[training]
mixed_precision_parm = "float32"
[checkpoint]
frequency = 3
)")
                  .findings,
              UnorderedElementsAre(
                  AllOf(HasSubstr("run.toml:3: "),
                        HasSubstr("did you mean data_parallel_shard_degree?")),
                  AllOf(HasSubstr("run.toml:5: "),
                        HasSubstr("did you mean mixed_precision_param?")),
                  AllOf(HasSubstr("run.toml:7: "), HasSubstr("is not known"))));
}

TEST(TorchTitan, ReportsEachUnrelatedSectionOnce) {
  EXPECT_THAT(
      ReadTorchTitanText(R"(
[metrics]
log_freq = 1
enable_tensorboard = true
[profiling]
enable_profiling = true
[model]
name = "llama3"
flavor = "8B"
)")
          .findings,
      UnorderedElementsAre(StartsWith("ignored run.toml:2: metrics"),
                           StartsWith("ignored run.toml:5: profiling"),
                           AllOf(StartsWith("ignored run.toml:7: model"),
                                 HasSubstr("name, flavor"))));
}

std::string Write(const TrainConfig& config, std::vector<std::string>& said) {
  Findings findings;
  std::string text = WriteTorchTitan(config, findings);
  said = TextsOf(findings);
  return text;
}

void ExpectReadsBack(const TrainConfig& config) {
  std::vector<std::string> said;
  const std::string text = Write(config, said);
  EXPECT_THAT(said, IsEmpty());
  const Reading again = ReadTorchTitanText(text);
  EXPECT_THAT(again.findings, IsEmpty()) << text;
  EXPECT_TRUE(same_training(config, again.config)) << text;
}

TEST(TorchTitan, WrittenConfigReadsBack) {
  ExpectReadsBack(ReadTorchTitanText("").config);
  ExpectReadsBack(ReadTorchTitanText(R"(
[job]
dump_folder = "s3://bucket//\"runs\""
[optimizer]
lr = 3e-5
weight_decay = 0
[training]
steps = 7
local_batch_size = 2
global_batch_size = 64
seq_len = 128
max_norm = 0.5
dtype = "bfloat16"
mixed_precision_param = "float32"
enable_cpu_offload = true
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
tensor_parallel_degree = 2
fsdp_reshard_after_forward = "never"
[checkpoint]
enable = true
interval = 3
async_mode = "async"
keep_latest_k = 0
last_save_model_only = false
export_dtype = "float16"
initial_load_path = "base"
[activation_checkpoint]
selective_ac_option = "3"
[debug]
seed = 5
)")
                      .config);
}

TEST(TorchTitan, FoldersReadBackUnchanged) {
  for (const char* folder : {"a", "/a", "a/b", "./a", "a//b", "a/", "/", "//a",
                             "s3://bucket/a", "\t\"\\"}) {
    TrainConfig config =
        ReadTorchTitanText("[checkpoint]\nenable = true").config;
    config.checkpoint.folder = std::string(folder);
    ExpectReadsBack(config);
  }
}

TEST(TorchTitan, ReportsSettingsThatTorchTitanCannotExpress) {
  TrainConfig config = ReadTorchTitanText("").config;
  config.mesh.data_parallel_replicate_degree =
      Setting<int64_t>(kReplicateOverRest, {.file = "a.yaml", .key = "b"});
  config.mesh.data_parallel_shard_degree = int64_t{2};
  config.mesh.num_processes = 8;
  config.precision.param_dtype = std::optional(DType::kFloat16);
  config.precision.reduce_dtype = std::optional(DType::kFloat16);
  config.precision.output_dtype = std::optional(DType::kFloat32);
  config.precision.cast_forward_inputs = false;
  config.sharding.reshard_after_forward = ReshardSetting(int64_t{4});
  config.sharding.auto_wrap_policy = AutoWrapPolicy::kSizeBasedWrap;
  config.sharding.transformer_layer_cls_to_wrap =
      std::vector<std::string>{"Block"};
  config.sharding.min_num_params = 5;
  config.sharding.ignored_modules = std::string("lm_head");
  config.sharding.activation_cpu_offload = true;
  config.checkpoint.folder = std::string("x");
  config.checkpoint.keep_latest_k = 1;
  config.checkpoint.state_dict_type = StateDictType::kFullStateDict;
  config.checkpoint.cpu_ram_efficient_loading = true;
  config.loop.lr = {};
  config.loop.gradient_accumulation_steps = std::optional<int64_t>(4);
  std::vector<std::string> said;
  const std::string text = Write(config, said);
  EXPECT_THAT(
      said,
      UnorderedElementsAre(
          HasSubstr("a.yaml: b is written as 4, because a number"),
          HasSubstr("mesh.num_processes"), HasSubstr("precision.param_dtype"),
          HasSubstr("precision.reduce_dtype"),
          HasSubstr("precision.output_dtype"),
          HasSubstr("precision.cast_forward_inputs"),
          HasSubstr("sharding.reshard_after_forward is written as always"),
          HasSubstr("sharding.auto_wrap_policy"),
          HasSubstr("sharding.transformer_layer_cls_to_wrap"),
          HasSubstr("sharding.min_num_params"),
          HasSubstr("sharding.ignored_modules"),
          HasSubstr("sharding.activation_cpu_offload is not written: "
                    "TorchTitan keeps activations on the device"),
          HasSubstr("checkpoint.interval is written as 10000"),
          HasSubstr("checkpoint.keep_latest_k is written as 2"),
          HasSubstr("checkpoint.state_dict_type"),
          HasSubstr("checkpoint.cpu_ram_efficient_loading"),
          HasSubstr("TorchTitan apply: lr 8e-4"),
          HasSubstr("loop.gradient_accumulation_steps")));
  EXPECT_THAT(ReadTorchTitanText(text).findings, IsEmpty()) << text;
}

}  // namespace
}  // namespace fsdp::config
