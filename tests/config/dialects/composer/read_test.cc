// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/dialects/composer/composer.h"
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
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

Reading Read(absl::string_view text) {
  return ReadWith(&ReadComposer, "run.yaml", Syntax::kYaml, text);
}

// Reads a config with options in an fsdp2 block, one per line.
Reading ReadFsdp2(absl::string_view options) {
  return Read(
      absl::StrCat("precision: fp32\nfsdp2:\n  verbose: false\n", options));
}
Reading ReadFsdp1(absl::string_view options) {
  return Read(
      absl::StrCat("precision: fp32\nfsdp:\n  verbose: false\n", options));
}

TEST(Composer, ReadsParallelismFromYaml) {
  const Reading reading = Read(R"(
precision: amp_bf16
parallelism_config:
  fsdp:
    reshard_after_forward: false
    activation_checkpointing: true
    state_dict_type: full
    load_monolith_rank0_only: true
    mixed_precision: PURE
    verbose: true
  tp:
    tensor_parallel_degree: 2
)");
  EXPECT_THAT(reading.findings, IsEmpty());
  const TrainConfig& config = reading.config;
  EXPECT_EQ(*config.sharding.fsdp_version, 2);
  EXPECT_EQ(*config.sharding.reshard_after_forward, ReshardSetting(false));
  EXPECT_EQ(*config.sharding.activation_checkpointing, 1);
  EXPECT_EQ(*config.checkpoint.state_dict_type, StateDictType::kFullStateDict);
  EXPECT_TRUE(*config.checkpoint.cpu_ram_efficient_loading);
  EXPECT_EQ(*config.precision.param_dtype, DType::kBFloat16);
  EXPECT_EQ(*config.precision.reduce_dtype, DType::kBFloat16);
  EXPECT_EQ(*config.mesh.tensor_parallel_degree, 2);
  EXPECT_EQ(config.sharding.reshard_after_forward.place()->line, 5);
}

TEST(Composer, ReadsStyleMapsAsPlans) {
  const Reading reading = Read(R"(
precision: amp_bf16
parallelism_config:
  fsdp: {reshard_after_forward: true}
  tp:
    tensor_parallel_degree: 4
    layer_plan:
      model.embed_tokens: embedding_rowwise
      model.layers.*.mlp.{gate,up}_proj: colwise
      model.layers.*.mlp.down_proj: {style: rowwise, output_layouts: shard(1)}
      model.norm: colwse
)");
  EXPECT_THAT(reading.findings,
              ElementsAre(AllOf(StartsWith("problem run.yaml:11: "),
                                HasSubstr("layer_plan.model.norm is 'colwse'"),
                                HasSubstr("did you mean colwise?"))));
  const Setting<dcp::ParallelPlan>& plan = reading.config.mesh.parallelize_plan;
  EXPECT_EQ(plan.place()->line, 8);
  ASSERT_EQ(plan->entries().size(), 3u);
  EXPECT_EQ(plan->entries()[1].pattern, "model.layers.*.mlp.{gate,up}_proj");
  EXPECT_EQ(plan->entries()[0].style.embedding, true);
  // Composer itself has a Python object here, or Foundry a function.
  EXPECT_THAT(Read("precision: fp32\nfsdp2: {verbose: true}\n"
                   "tp: {tensor_parallel_degree: 2, layer_plan: my_plan}\n")
                  .findings,
              ElementsAre(AllOf(HasSubstr("layer_plan has no effect"),
                                HasSubstr("parallelize_plan"))));
  EXPECT_THAT(Read("precision: fp32\nfsdp2: {verbose: true}\n"
                   "tp_config: {tensor_parallel_degree: 2, strategy: ffn}\n")
                  .findings,
              ElementsAre(AllOf(HasSubstr("tp_config.strategy has no effect"),
                                HasSubstr("write layer_plan"))));
}

TEST(Composer, ReadsPythonDicts) {
  const Reading reading = Read(
      "{'precision': 'amp_bf16', 'parallelism_config': {'fsdp': {\n"
      "    'reshard_after_forward': True, 'device_mesh': None}}}");
  EXPECT_THAT(reading.findings, IsEmpty());
  EXPECT_EQ(*reading.config.sharding.reshard_after_forward,
            ReshardSetting(true));
  EXPECT_EQ(*reading.config.precision.param_dtype, DType::kBFloat16);
}

TEST(Composer, AutoWrapMeansDirectChildren) {
  EXPECT_EQ(*ReadFsdp2("").config.sharding.auto_wrap_policy,
            AutoWrapPolicy::kDirectChildren);
  EXPECT_EQ(*ReadFsdp1("").config.sharding.auto_wrap_policy,
            AutoWrapPolicy::kDirectChildren);
}

TEST(Composer, StateDictTypeDependsOnTheVersion) {
  EXPECT_EQ(*ReadFsdp2("").config.checkpoint.state_dict_type,
            StateDictType::kShardedStateDict);
  EXPECT_EQ(*ReadFsdp1("").config.checkpoint.state_dict_type,
            StateDictType::kFullStateDict);
  EXPECT_EQ(*ReadFsdp1("  state_dict_type: sharded")
                 .config.checkpoint.state_dict_type,
            StateDictType::kShardedStateDict);
  EXPECT_THAT(ReadFsdp1("  state_dict_type: local").findings,
              ElementsAre(HasSubstr("is 'local', not full or sharded")));
}

TEST(Composer, ReshardDegreeIsFlexible) {
  const auto reshard = [](absl::string_view value) {
    return *ReadFsdp2(absl::StrCat("  reshard_after_forward: ", value))
                .config.sharding.reshard_after_forward;
  };
  EXPECT_EQ(reshard("true"), ReshardSetting(true));
  EXPECT_EQ(reshard("False"), ReshardSetting(false));
  EXPECT_EQ(reshard("4"), ReshardSetting(int64_t{4}));
  for (const char* value : {"0", "-1", "sometimes", "[1]"}) {
    EXPECT_THAT(
        ReadFsdp2(absl::StrCat("  reshard_after_forward: ", value)).findings,
        ElementsAre(HasSubstr("is not true, false or a number of ranks")));
  }
}

TEST(Composer, HybridShardingMakesCopiesAndShards) {
  for (const Reading& reading :
       {ReadFsdp2("  data_parallel_replicate_degree: 2\n"
                  "  data_parallel_shard_degree: 4\n"),
        ReadFsdp1("  data_parallel_replicate_degree: 2\n"
                  "  data_parallel_shard_degree: 4\n"
                  "  sharding_strategy: HYBRID_SHARD\n")}) {
    EXPECT_EQ(*reading.config.mesh.data_parallel_replicate_degree, 2);
    EXPECT_EQ(*reading.config.mesh.data_parallel_shard_degree, 4);
  }
  EXPECT_THAT(ReadFsdp2("  data_parallel_shard_degree: 0").findings,
              ElementsAre(HasSubstr("is 0, not -1")));
  EXPECT_THAT(ReadFsdp2("  device_mesh: [2, 4]").findings,
              ElementsAre(HasSubstr("write data_parallel_shard_degree")));
}

TEST(Composer, ShardingStrategyBecomesReshardAfterForward) {
  struct Case {
    absl::string_view strategy;
    bool reshard;
    int64_t shard;
  };
  for (const Case& c : {Case{"FULL_SHARD", true, kShardOverRest},
                        Case{"shard_grad_op", false, kShardOverRest},
                        Case{"HYBRID_SHARD", true, kShardWithinNode},
                        Case{"_HYBRID_SHARD_ZERO2", false, kShardWithinNode}}) {
    const Reading reading =
        ReadFsdp1(absl::StrCat("  sharding_strategy: ", c.strategy));
    EXPECT_EQ(*reading.config.sharding.reshard_after_forward,
              ReshardSetting(c.reshard));
    EXPECT_EQ(*reading.config.mesh.data_parallel_shard_degree, c.shard);
    EXPECT_EQ(*reading.config.sharding.fsdp_version, 1);
    EXPECT_THAT(reading.findings,
                ElementsAre(StartsWith(
                    "changed run.yaml:4: fsdp.sharding_strategy is read as "
                    "reshard_after_forward: ")));
  }
  const MeshConfig mesh =
      ReadFsdp1("  sharding_strategy: NO_SHARD").config.mesh;
  EXPECT_EQ(*mesh.data_parallel_shard_degree, 1);
  EXPECT_EQ(*mesh.data_parallel_replicate_degree, kReplicateOverRest);
  EXPECT_THAT(ReadFsdp1("  sharding_strategy: SHARD").findings,
              ElementsAre(StartsWith("problem run.yaml:4: ")));
}

TEST(Composer, ReshardAfterForwardSelectsFsdp2) {
  const Reading reading = ReadFsdp1(
      "  reshard_after_forward: true\n  sharding_strategy: FULL_SHARD");
  EXPECT_EQ(*reading.config.sharding.fsdp_version, 2);
  EXPECT_THAT(reading.findings, ElementsAre(StartsWith("ignored ")));
}

TEST(Composer, RemovedArgumentsHaveNoEffect) {
  for (const char* option :
       {"backward_prefetch: BACKWARD_PRE", "sync_module_states: true",
        "limit_all_gathers: true", "use_orig_params: true",
        "forward_prefetch: true", "process_group: node",
        "activation_checkpointing_reentrant: false",
        "save_planner: {rank0: {}}"}) {
    EXPECT_THAT(ReadFsdp1(absl::StrCat("  ", option)).findings,
                ElementsAre(AllOf(StartsWith("ignored run.yaml:4: fsdp."),
                                  HasSubstr("has no effect: "))))
        << option;
  }
  EXPECT_THAT(ReadFsdp1("  backward_prefetch: BACKWARD_POST").findings,
              ElementsAre(StartsWith("changed run.yaml:4: ")));
}

TEST(Composer, MixedPrecisionBecomesAPolicy) {
  struct Case {
    absl::string_view precision;
    absl::string_view mixed_precision;
    std::optional<DType> param;
    std::optional<DType> reduce;
  };
  const std::optional<DType> none;
  for (const Case& c :
       {Case{"amp_bf16", "DEFAULT", DType::kBFloat16, DType::kFloat32},
        Case{"amp_bf16", "pure", DType::kBFloat16, DType::kBFloat16},
        Case{"amp_bf16", "FULL", none, none},
        Case{"amp_fp16", "DEFAULT", DType::kFloat16, DType::kFloat32},
        Case{"fp32", "DEFAULT", none, none}, Case{"fp32", "PURE", none, none},
        Case{"fp32", "{param_dtype: bf16, buffer_dtype: bf16}",
             DType::kBFloat16, none},
        Case{"fp32", "{reduce_dtype: bfloat16}", none, DType::kBFloat16}}) {
    const PrecisionConfig precision =
        Read(absl::StrCat("precision: ", c.precision,
                          "\nfsdp2:\n  mixed_precision: ", c.mixed_precision))
            .config.precision;
    EXPECT_EQ(*precision.param_dtype, c.param) << c.mixed_precision;
    EXPECT_EQ(*precision.reduce_dtype, c.reduce) << c.mixed_precision;
  }
  // FSDP1 reduces as it gathers.
  const Reading old = ReadFsdp1("  mixed_precision: {param_dtype: bf16}");
  EXPECT_EQ(*old.config.precision.reduce_dtype, DType::kBFloat16);
}

TEST(Composer, ReadsAutocastAsNoCast) {
  EXPECT_THAT(
      Read("precision: amp_bf16\nfsdp2: {mixed_precision: FULL}").findings,
      ElementsAre(AllOf(StartsWith("changed "), HasSubstr("torch.autocast"))));
}

TEST(Composer, ReportsAMissingPrecision) {
  const Reading reading = Read("fsdp2: {verbose: true}");
  EXPECT_EQ(*reading.config.precision.param_dtype, std::nullopt);
  EXPECT_THAT(reading.findings,
              ElementsAre(AllOf(StartsWith("changed run.yaml:1: fsdp2 "),
                                HasSubstr("write precision: amp_bf16"))));
}

TEST(Composer, RefusesFloat8WithAdvice) {
  EXPECT_THAT(
      Read("precision: amp_fp8\nfsdp2: {verbose: true}").findings,
      ElementsAre(AllOf(StartsWith("problem run.yaml:1: precision is amp_fp8"),
                        HasSubstr("write amp_bf16"),
                        HasSubstr("fsdp::float8_all_gather"))));
}

TEST(Composer, ReadsCpuOffload) {
  EXPECT_TRUE(*ReadFsdp1("  cpu_offload: true").config.sharding.cpu_offload);
}

TEST(Composer, ReadsActivationOffload) {
  for (const bool value : {false, true}) {
    const Reading reading = ReadFsdp2(
        absl::StrCat("  activation_cpu_offload: ", value ? "true" : "false"));
    EXPECT_THAT(reading.findings, IsEmpty());
    EXPECT_EQ(*reading.config.sharding.activation_cpu_offload, value);
  }
}

TEST(Composer, SuggestsTheNearestKnownOption) {
  EXPECT_THAT(ReadFsdp2("  reshard_after_foward: true\n").findings,
              ElementsAre(AllOf(HasSubstr("run.yaml:4: "),
                                HasSubstr("mean reshard_after_forward?"))));
  EXPECT_THAT(Read("precision: fp32\nparallelism_config:\n  fsdp3: {}\n"
                   "  fsdp: {reshard_after_forward: true}")
                  .findings,
              ElementsAre(StartsWith("problem run.yaml:3: ")));
}

TEST(Composer, RefusesTwoBlocks) {
  EXPECT_THAT(
      Read("precision: fp32\nparallelism_config:\n"
           "  fsdp2: {verbose: true}\n  fsdp: {verbose: true}")
          .findings,
      Contains(HasSubstr("is given together with parallelism_config.fsdp2")));
}

TEST(Composer, TrainsCopiesWithoutABlock) {
  const Reading reading = Read("precision: fp32\nparallelism_config: {}");
  EXPECT_EQ(*reading.config.mesh.data_parallel_shard_degree, 1);
  EXPECT_THAT(reading.findings,
              ElementsAre(HasSubstr("has neither fsdp2 nor fsdp")));
}

TEST(Composer, CopiesComputeInThePrecision) {
  const Reading reading = Read("precision: amp_bf16\nparallelism_config: {}");
  EXPECT_EQ(*reading.config.precision.param_dtype, DType::kBFloat16);
  EXPECT_EQ(*reading.config.precision.reduce_dtype, DType::kFloat32);
}

TEST(Composer, MixedInitDeviceLoadsOnRank0) {
  const Reading mixed = Read("fsdp_config: {}\nmodel: {init_device: mixed}\n");
  EXPECT_TRUE(*mixed.config.checkpoint.cpu_ram_efficient_loading);
  EXPECT_THAT(mixed.findings,
              ElementsAre(HasSubstr("load_monolith_rank0_only: true")));
  const Reading said = Read(
      "fsdp_config: {load_monolith_rank0_only: false}\n"
      "model: {init_device: mixed}\n");
  EXPECT_FALSE(*said.config.checkpoint.cpu_ram_efficient_loading);
  EXPECT_THAT(said.findings, IsEmpty());
  const Reading meta = Read("fsdp_config: {}\nmodel: {init_device: meta}\n");
  EXPECT_FALSE(*meta.config.checkpoint.cpu_ram_efficient_loading);
  EXPECT_THAT(
      Read("max_duration: 10ba\nmodel: {init_device: mixed}\n").findings,
      ::testing::Contains(HasSubstr("problem run.yaml:2")));
}

TEST(Composer, ReadsKeysAroundTheBlock) {
  const Reading reading = Read(R"(
precision: amp_bf16
max_duration: 1000ba
save_folder: steps
save_interval: 500ba
save_num_checkpoints_to_keep: 2
load_path: base.pt
load_weights_only: true
device_train_microbatch_size: 4
device_train_batch_size: 16
global_train_batch_size: 128
max_seq_len: 2048
seed: 9
optimizer: {name: adamw, lr: 6e-4, weight_decay: 0.1}
algorithms: {gradient_clipping: {clipping_type: norm, clipping_threshold: 1}}
parallelism_config: {fsdp: {reshard_after_forward: true}}
)");
  EXPECT_THAT(reading.findings, IsEmpty());
  const CheckpointConfig& checkpoint = reading.config.checkpoint;
  EXPECT_EQ(*checkpoint.folder, "steps");
  EXPECT_EQ(*checkpoint.interval, 500);
  EXPECT_EQ(*checkpoint.keep_latest_k, 2);
  EXPECT_EQ(*checkpoint.initial_load_path, "base.pt");
  const LoopConfig& loop = reading.config.loop;
  EXPECT_EQ(*loop.steps, 1000);
  EXPECT_EQ(*loop.local_batch_size, 4);
  EXPECT_EQ(*loop.gradient_accumulation_steps, 4);
  EXPECT_EQ(*loop.global_batch_size, 128);
  EXPECT_EQ(*loop.seq_len, 2048);
  EXPECT_EQ(*loop.seed, 9);
  EXPECT_EQ(*loop.lr, 6e-4);
  EXPECT_EQ(*loop.weight_decay, 0.1);
  EXPECT_EQ(*loop.max_norm, 1.0);
}

TEST(Composer, ReadsLlmFoundryFiles) {
  const Reading reading = Read(R"(
variables:
  global_seed: 18
  max_seq_len: 1024
max_seq_len: ${variables.max_seq_len}
seed: ${variables.global_seed}
run_name: mpt
model:
  name: mpt_causal_lm
  d_model: 768
tokenizer: {name: gpt2}
train_loader: {name: text}
eval_loader: {name: text}
scheduler: {name: cosine_with_warmup, t_warmup: 100ba}
callbacks: {speed_monitor: {window_size: 10}}
device_train_microbatch_size: auto
global_train_batch_size: 256
max_duration: 4800ba
fsdp_config:
  sharding_strategy: FULL_SHARD
  mixed_precision: PURE
  activation_checkpointing: false
  activation_checkpointing_reentrant: false
  activation_cpu_offload: false
  limit_all_gathers: true
)");
  EXPECT_EQ(*reading.config.loop.seq_len, 1024);
  EXPECT_EQ(*reading.config.loop.seed, 18);
  EXPECT_EQ(*reading.config.loop.global_batch_size, 256);
  EXPECT_EQ(*reading.config.precision.reduce_dtype, DType::kBFloat16);
  EXPECT_THAT(reading.findings,
              AllOf(Contains(StartsWith("changed run.yaml:16: ")),
                    Contains(AllOf(StartsWith("ignored "),
                                   HasSubstr("has keys without effect")))));
  EXPECT_THAT(reading.findings,
              ::testing::Not(Contains(StartsWith("problem "))));
}

TEST(Composer, CircularReferencesStayStrings) {
  EXPECT_THAT(
      Read("precision: fp32\nfsdp2: {verbose: true}\n"
           "seed: ${max_seq_len}\nmax_seq_len: ${seed}")
          .findings,
      UnorderedElementsAre(HasSubstr("${max_seq_len}"), HasSubstr("${seed}")));
}

TEST(Composer, DoesNotCastSixteenBitWeights) {
  const PrecisionConfig precision =
      Read("model: {master_weights_dtype: bf16}\nfsdp_config: {verbose: true}")
          .config.precision;
  EXPECT_EQ(*precision.dtype, DType::kBFloat16);
  EXPECT_EQ(*precision.param_dtype, std::nullopt);
  EXPECT_EQ(*precision.reduce_dtype, std::nullopt);
}

std::string Write(const TrainConfig& config, std::vector<std::string>& said) {
  Findings findings;
  std::string text = WriteComposer(config, findings);
  said = TextsOf(findings);
  return text;
}

TEST(Composer, WrittenConfigReadsBack) {
  for (const char* text :
       {"precision: fp32\nfsdp2: {verbose: true}",
        "precision: amp_fp16\nfsdp2: {mixed_precision: PURE, "
        "reshard_after_forward: 4, activation_checkpointing: true}",
        "precision: fp32\nfsdp2: {mixed_precision: {param_dtype: bf16}, "
        "load_monolith_rank0_only: true, state_dict_type: full}\n"
        "tp: {tensor_parallel_degree: 4}\n"
        "model: {master_weights_dtype: bf16}\n",
        "precision: amp_bf16\nmax_duration: 1000ba\nsave_folder: 'a \"b\"'\n"
        "save_interval: 500ba\nsave_num_checkpoints_to_keep: 2\n"
        "load_path: base.pt\nload_weights_only: true\n"
        "device_train_microbatch_size: 4\ndevice_train_batch_size: 16\n"
        "global_train_batch_size: 128\nmax_seq_len: 2048\nseed: 9\n"
        "optimizer: {name: adamw, lr: 6e-4, weight_decay: 0.1}\n"
        "algorithms: {gradient_clipping: {clipping_type: norm, "
        "clipping_threshold: 1}}\nfsdp2: {verbose: true}",
        "precision: fp32\nsave_folder: a\nsave_interval: 1dur\n"
        "fsdp2: {verbose: true}"}) {
    const Reading first = Read(text);
    std::vector<std::string> said;
    const std::string written = Write(first.config, said);
    EXPECT_THAT(said, IsEmpty()) << text;
    const Reading again = Read(written);
    // There is no finding, not even about the section with
    // master_weights_dtype.
    EXPECT_THAT(again.findings, IsEmpty()) << written;
    EXPECT_TRUE(same_training(first.config, again.config)) << written;
  }
}

TEST(Composer, ReportsSettingsThatComposerCannotExpress) {
  TrainConfig config = Read("precision: fp32\nfsdp2: {verbose: true}").config;
  config.mesh.data_parallel_shard_degree = 8;
  config.mesh.num_processes = 8;
  config.precision.output_dtype = std::optional(DType::kFloat32);
  config.precision.cast_forward_inputs = false;
  config.sharding.reshard_after_forward = ReshardSetting();
  config.sharding.cpu_offload = true;
  config.sharding.auto_wrap_policy = AutoWrapPolicy::kTransformerBasedWrap;
  config.sharding.transformer_layer_cls_to_wrap =
      std::vector<std::string>{"Block"};
  config.sharding.min_num_params = 5;
  config.sharding.ignored_modules = std::string("lm_head");
  config.sharding.activation_checkpointing = 2;
  config.checkpoint.async = true;
  config.checkpoint.last_save_model_only = true;
  config.checkpoint.export_dtype = DType::kBFloat16;
  config.loop.gradient_accumulation_steps = std::optional<int64_t>(4);
  std::vector<std::string> said;
  const std::string text = Write(config, said);
  EXPECT_THAT(
      said,
      UnorderedElementsAre(
          HasSubstr("mesh.data_parallel_shard_degree is not written"),
          HasSubstr("mesh.num_processes"), HasSubstr("precision.output_dtype"),
          HasSubstr("precision.cast_forward_inputs"),
          HasSubstr("sharding.reshard_after_forward is written as true"),
          HasSubstr("sharding.cpu_offload is written, but"),
          HasSubstr("sharding.auto_wrap_policy"),
          HasSubstr("sharding.transformer_layer_cls_to_wrap"),
          HasSubstr("sharding.min_num_params"),
          HasSubstr("sharding.ignored_modules"),
          HasSubstr("sharding.activation_checkpointing is written as true"),
          HasSubstr("checkpoint.async"),
          HasSubstr("checkpoint.last_save_model_only"),
          HasSubstr("checkpoint.export_dtype"),
          HasSubstr("loop.gradient_accumulation_steps")));
  const Reading again = Read(text);
  EXPECT_THAT(again.findings, IsEmpty()) << text;
  EXPECT_TRUE(*again.config.sharding.cpu_offload);
}

}  // namespace
}  // namespace fsdp::config
