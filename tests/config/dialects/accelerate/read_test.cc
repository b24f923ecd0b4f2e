// SPDX-License-Identifier: Apache-2.0
// Reading and writing accelerate's files; read_config_text decides that they
// are accelerate's.
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/dialects/accelerate/accelerate.h"
#include "config/document/document.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct AccelerateReading {
  TrainConfig config;
  Findings findings;
};

AccelerateReading ReadAccelerateText(absl::string_view text) {
  AccelerateReading read;
  const Node root = ParseDocument("f.yaml", text, Syntax::kYaml, read.findings);
  ReadAccelerate(root, read.config, read.findings);
  return read;
}

// Reads options of fsdp_config, indented by two spaces.
AccelerateReading ReadAccelerateOptions(absl::string_view options) {
  return ReadAccelerateText(
      absl::StrCat("distributed_type: FSDP\nfsdp_config:\n", options));
}

std::vector<std::string> Texts(const Findings& findings, Finding::Kind kind) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings.list()) {
    if (finding.kind == kind) texts.push_back(to_string(finding));
  }
  return texts;
}
std::vector<std::string> Problems(const AccelerateReading& read) {
  return Texts(read.findings, Finding::Kind::kProblem);
}

// As shipped with trl.
constexpr absl::string_view kShippedFsdp1 =
    R"(compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: false
fsdp_config:
  fsdp_activation_checkpointing: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_cpu_ram_efficient_loading: true
  fsdp_forward_prefetch: true
  fsdp_offload_params: false
  fsdp_reshard_after_forward: FULL_SHARD
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_use_orig_params: true
  fsdp_version: 1
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
)";

TEST(Accelerate, ReadsAShippedVersion1FileWithFewFindings) {
  const AccelerateReading read = ReadAccelerateText(kShippedFsdp1);
  EXPECT_THAT(Problems(read), IsEmpty());
  EXPECT_LE(read.findings.list().size(), 6u);
  const TrainConfig& config = read.config;
  EXPECT_EQ(*config.sharding.fsdp_version, 1);
  EXPECT_EQ(*config.sharding.reshard_after_forward, ReshardSetting(true));
  EXPECT_EQ(*config.sharding.auto_wrap_policy,
            AutoWrapPolicy::kTransformerBasedWrap);
  EXPECT_EQ(*config.checkpoint.state_dict_type, StateDictType::kFullStateDict);
  EXPECT_TRUE(*config.checkpoint.cpu_ram_efficient_loading);
  EXPECT_EQ(*config.precision.param_dtype, dcp::DType::kBFloat16);
  EXPECT_EQ(*config.precision.reduce_dtype, dcp::DType::kBFloat16);
  EXPECT_EQ(*config.mesh.num_processes, 8);
  EXPECT_EQ(*config.mesh.data_parallel_shard_degree, kShardOverRest);
}

TEST(Accelerate, ValuesKeepTheirPlaces) {
  const AccelerateReading read = ReadAccelerateText(kShippedFsdp1);
  const std::optional<SourceLocation>& place =
      read.config.sharding.reshard_after_forward.place();
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->line, 13);
  EXPECT_EQ(place->key, "fsdp_config.fsdp_reshard_after_forward");
}

TEST(Accelerate, DefaultsMatchAccelerateLaunch) {
  const AccelerateReading read = ReadAccelerateText("distributed_type: FSDP\n");
  EXPECT_THAT(Problems(read), IsEmpty());
  EXPECT_EQ(*read.config.sharding.fsdp_version, 1);
  EXPECT_EQ(*read.config.sharding.auto_wrap_policy, AutoWrapPolicy::kNoWrap);
  EXPECT_EQ(*read.config.checkpoint.state_dict_type,
            StateDictType::kFullStateDict);
  EXPECT_EQ(*ReadAccelerateOptions("  fsdp_version: 2\n")
                 .config.checkpoint.state_dict_type,
            StateDictType::kShardedStateDict);
}

TEST(Accelerate, OptionsMayLackThePrefix) {
  const AccelerateReading read = ReadAccelerateOptions(
      "  version: 2\n  offload_params: true\n  auto_wrap_policy: NO_WRAP\n"
      "  activation_checkpointing: true\n  reshard_after_forward: false\n");
  EXPECT_THAT(Problems(read), IsEmpty());
  EXPECT_TRUE(*read.config.sharding.cpu_offload);
  EXPECT_EQ(*read.config.sharding.activation_checkpointing, 1);
  EXPECT_EQ(*read.config.sharding.reshard_after_forward, ReshardSetting(false));
}

TEST(Accelerate, RefusesAnOptionGivenUnderBothNames) {
  EXPECT_THAT(
      Problems(ReadAccelerateOptions("  fsdp_offload_params: true\n"
                                     "  offload_params: true\n")),
      ElementsAre(AllOf(HasSubstr("f.yaml:4"), HasSubstr("another name"))));
}

TEST(Accelerate, BooleansMayBeStrings) {
  const AccelerateReading read = ReadAccelerateOptions(
      "  fsdp_version: '2'\n  fsdp_offload_params: 'True'\n"
      "  fsdp_reshard_after_forward: \"no\"\n");
  EXPECT_THAT(Problems(read), IsEmpty());
  EXPECT_TRUE(*read.config.sharding.cpu_offload);
  EXPECT_EQ(*read.config.sharding.reshard_after_forward, ReshardSetting(false));
}

TEST(Accelerate, FsdpVersionIs1Or2) {
  EXPECT_THAT(Problems(ReadAccelerateOptions("  fsdp_version: 3\n")),
              ElementsAre(HasSubstr("fsdp_config.fsdp_version is 3")));
}

TEST(Accelerate, ShardingStrategyIsReshardAfterForward) {
  for (const absl::string_view key :
       {"fsdp_sharding_strategy", "fsdp_reshard_after_forward"}) {
    const AccelerateReading full =
        ReadAccelerateOptions(absl::StrCat("  ", key, ": FULL_SHARD\n"));
    EXPECT_EQ(*full.config.sharding.reshard_after_forward,
              ReshardSetting(true));
    const AccelerateReading grad =
        ReadAccelerateOptions(absl::StrCat("  ", key, ": 2\n"));
    EXPECT_THAT(Problems(grad), IsEmpty());
    EXPECT_EQ(*grad.config.sharding.reshard_after_forward,
              ReshardSetting(false));
  }
}

TEST(Accelerate, SuggestsStrategiesForAMisspeltOne) {
  EXPECT_THAT(
      Problems(ReadAccelerateOptions("  fsdp_sharding_strategy: FULL_SHRAD\n")),
      ElementsAre(AllOf(HasSubstr("'FULL_SHRAD'"), HasSubstr("FULL_SHARD"))));
}

TEST(Accelerate, RefusesTwoConflictingStrategies) {
  EXPECT_THAT(Problems(ReadAccelerateOptions(
                  "  fsdp_sharding_strategy: FULL_SHARD\n"
                  "  fsdp_reshard_after_forward: SHARD_GRAD_OP\n")),
              ElementsAre(HasSubstr("keep one of the two")));
  EXPECT_THAT(Problems(ReadAccelerateOptions(
                  "  fsdp_sharding_strategy: FULL_SHARD\n"
                  "  fsdp_reshard_after_forward: full_shard\n")),
              IsEmpty());
}

TEST(Accelerate, RecommendsConversionForAStrategyInVersion2) {
  EXPECT_THAT(
      Problems(ReadAccelerateOptions("  fsdp_version: 2\n"
                                     "  fsdp_reshard_after_forward: FULL_SHARD"
                                     "\n")),
      ElementsAre(HasSubstr("to-fsdp2")));
}

TEST(Accelerate, HybridShardTakesItsDegreesFromNumMachines) {
  constexpr absl::string_view kHybrid =
      "distributed_type: FSDP\n"
      "fsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}\n";
  const AccelerateReading two = ReadAccelerateText(
      absl::StrCat(kHybrid, "num_machines: 2\nnum_processes: 16\n"));
  EXPECT_EQ(*two.config.mesh.data_parallel_replicate_degree, 2);
  EXPECT_EQ(*two.config.mesh.data_parallel_shard_degree, 8);
  const AccelerateReading one = ReadAccelerateText(
      absl::StrCat(kHybrid, "num_machines: 1\nnum_processes: 8\n"));
  EXPECT_EQ(*one.config.mesh.data_parallel_shard_degree, kShardOverRest);
  // The default in accelerate is one machine.
  EXPECT_EQ(*ReadAccelerateText(kHybrid).config.mesh.data_parallel_shard_degree,
            kShardOverRest);
}

TEST(Accelerate, NoShardIsACopyOnEveryRank) {
  const AccelerateReading read =
      ReadAccelerateOptions("  fsdp_sharding_strategy: NO_SHARD\n");
  EXPECT_THAT(Problems(read), IsEmpty());
  EXPECT_EQ(*read.config.mesh.data_parallel_replicate_degree,
            kReplicateOverRest);
}

TEST(Accelerate, StateDictTypeIsFullOrSharded) {
  EXPECT_EQ(
      *ReadAccelerateOptions("  fsdp_state_dict_type: SHARDED_STATE_DICT\n")
           .config.checkpoint.state_dict_type,
      StateDictType::kShardedStateDict);
  EXPECT_EQ(
      *ReadAccelerateOptions("  fsdp_version: 2\n  fsdp_state_dict_type: 1\n")
           .config.checkpoint.state_dict_type,
      StateDictType::kFullStateDict);
}

TEST(Accelerate, LocalStateDictIsRefused) {
  EXPECT_THAT(Problems(ReadAccelerateOptions(
                  "  fsdp_state_dict_type: LOCAL_STATE_DICT\n")),
              ElementsAre(HasSubstr("SHARDED_STATE_DICT")));
}

TEST(Accelerate, WrapsByTypeBySizeOrNotAtAll) {
  const AccelerateReading types = ReadAccelerateOptions(
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
      "  fsdp_transformer_layer_cls_to_wrap: Block, Embedding\n");
  EXPECT_THAT(*types.config.sharding.transformer_layer_cls_to_wrap,
              ElementsAre("Block", "Embedding"));
  const AccelerateReading size = ReadAccelerateOptions(
      "  fsdp_auto_wrap_policy: size_based_wrap\n"
      "  fsdp_min_num_params: 1e6\n");
  EXPECT_EQ(*size.config.sharding.auto_wrap_policy,
            AutoWrapPolicy::kSizeBasedWrap);
  EXPECT_EQ(*size.config.sharding.min_num_params, 1000000);
  const AccelerateReading none = ReadAccelerateOptions(
      "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
      "  fsdp_min_num_params: 0\n");
  EXPECT_EQ(*none.config.sharding.auto_wrap_policy, AutoWrapPolicy::kNoWrap);
}

TEST(Accelerate, CpuRamEfficientLoadingIsKept) {
  EXPECT_FALSE(
      *ReadAccelerateOptions("  fsdp_cpu_ram_efficient_loading: false\n")
           .config.checkpoint.cpu_ram_efficient_loading);
}

TEST(Accelerate, ReadsActivationOffload) {
  const AccelerateReading read = ReadAccelerateOptions(
      "  fsdp_version: 2\n  fsdp_activation_checkpointing: true\n"
      "  fsdp_activation_checkpointing_offload: true\n");
  EXPECT_THAT(Problems(read), IsEmpty());
  EXPECT_EQ(*read.config.sharding.activation_checkpointing, 1);
  EXPECT_TRUE(*read.config.sharding.activation_cpu_offload);
}

// accelerate's launcher and plugin check these.
TEST(Accelerate, ReportsOptionsThatTheLauncherRefuses) {
  for (const char* options :
       {"  fsdp_version: 2\n  fsdp_activation_checkpointing_offload: true\n",
        "  fsdp_activation_checkpointing: true\n"
        "  fsdp_activation_checkpointing_offload: true\n",
        "  fsdp_sync_module_states: false\n",
        "  fsdp_backward_prefetch: BACKWARD\n",
        "  fsdp_backward_prefetch: [BACKWARD_PRE]\n",
        "  fsdp_version: 1\n  fsdp_reshard_after_forward: false\n",
        "  fsdp_version: 1\n  fsdp_reshard_after_forward: NO_SHARD\n"}) {
    EXPECT_THAT(Problems(ReadAccelerateOptions(options)), SizeIs(1)) << options;
  }
  EXPECT_THAT(Problems(ReadAccelerateOptions(
                  "  fsdp_sync_module_states: false\n"
                  "  fsdp_cpu_ram_efficient_loading: false\n")),
              IsEmpty());
  EXPECT_THAT(Problems(ReadAccelerateText(
                  "distributed_type: FSDP\ncompute_environment: CLOUD\n"
                  "num_machines: few\n")),
              SizeIs(2));
}

TEST(Accelerate, IgnoresFsdp1OptionsWithReasons) {
  const AccelerateReading read = ReadAccelerateOptions(
      "  fsdp_use_orig_params: true\n  fsdp_sync_module_states: true\n"
      "  fsdp_forward_prefetch: true\n  fsdp_backward_prefetch: BACKWARD_POST"
      "\n");
  EXPECT_THAT(Problems(read), IsEmpty());
  EXPECT_EQ(Texts(read.findings, Finding::Kind::kIgnored).size(), 3u);
  EXPECT_THAT(Texts(read.findings, Finding::Kind::kChanged),
              ElementsAre(HasSubstr("BACKWARD_PRE")));
}

TEST(Accelerate, MixedPrecisionAppliesToParametersAndGradients) {
  const AccelerateReading half =
      ReadAccelerateText("distributed_type: FSDP\nmixed_precision: FP16\n");
  EXPECT_EQ(*half.config.precision.param_dtype, dcp::DType::kFloat16);
  const AccelerateReading none =
      ReadAccelerateText("distributed_type: FSDP\nmixed_precision: no\n");
  EXPECT_THAT(Problems(none), IsEmpty());
  EXPECT_FALSE(none.config.precision.param_dtype->has_value());
  const AccelerateReading old =
      ReadAccelerateText("distributed_type: FSDP\nfp16: true\n");
  EXPECT_EQ(*old.config.precision.param_dtype, dcp::DType::kFloat16);
  EXPECT_THAT(Problems(ReadAccelerateText("distributed_type: FSDP\n"
                                          "mixed_precision: fp8\n")),
              ElementsAre(AllOf(HasSubstr("mixed_precision is fp8"),
                                HasSubstr("write bf16"),
                                HasSubstr("fsdp::float8_all_gather"))));
}

TEST(Accelerate, RefusesOtherDistributedTypesWithReasons) {
  for (const auto& [type, why] :
       {std::pair<const char*, const char*>{"DEEPSPEED", "DeepSpeed"},
        {"MEGATRON_LM", "Megatron-LM"},
        {"XLA", "TPUs"},
        {"TP", "FSDP or MULTI_GPU"}}) {
    EXPECT_THAT(
        Problems(ReadAccelerateText(absl::StrCat("distributed_type: ", type,
                                                 "\ntpu_use_sudo: false\n"))),
        ElementsAre(AllOf(HasSubstr("distributed_type"), HasSubstr(why))))
        << type;
  }
  EXPECT_THAT(
      Problems(ReadAccelerateText("distributed_type: DEEPSPEED\n"
                                  "deepspeed_config: {zero_stage: 3}\n")),
      ElementsAre(HasSubstr("distributed_type"), HasSubstr("DeepSpeed")));
  EXPECT_THAT(Problems(ReadAccelerateText("num_processes: 2\n")),
              ElementsAre(HasSubstr("distributed_type")));
}

TEST(Accelerate, TypesWithoutShardsAreCopies) {
  for (const absl::string_view type :
       {"MULTI_GPU", "MULTI_CPU", "MULTI_XPU", "MULTI_NPU", "'NO'", "NO"}) {
    const AccelerateReading read = ReadAccelerateText(
        absl::StrCat("distributed_type: ", type, "\nmixed_precision: bf16\n"));
    EXPECT_THAT(Problems(read), IsEmpty()) << type;
    EXPECT_EQ(*read.config.mesh.data_parallel_shard_degree, 1) << type;
    EXPECT_EQ(*read.config.mesh.data_parallel_replicate_degree,
              kReplicateOverRest);
    // DDP computes with autocast and averages gradients in float32.
    EXPECT_EQ(*read.config.precision.param_dtype, dcp::DType::kBFloat16);
    EXPECT_EQ(*read.config.precision.reduce_dtype, dcp::DType::kFloat32);
    EXPECT_FALSE(*read.config.checkpoint.cpu_ram_efficient_loading);
    ASSERT_EQ(read.findings.list().size(), 1u) << type;
    EXPECT_THAT(read.findings.list()[0].text, HasSubstr("the whole model"));
  }
}

TEST(Accelerate, FsdpOptionsHaveNoEffectForOtherTypes) {
  const AccelerateReading read = ReadAccelerateText(
      "distributed_type: MULTI_GPU\n"
      "fsdp_config: {fsdp_version: 2, fsdp_offload_params: true}\n");
  EXPECT_THAT(Problems(read), IsEmpty());
  EXPECT_FALSE(*read.config.sharding.cpu_offload);
  EXPECT_THAT(to_string(read.findings.list().back()),
              AllOf(HasSubstr("fsdp_config has no effect"),
                    HasSubstr("distributed_type is not FSDP")));
  EXPECT_THAT(
      Problems(ReadAccelerateText("distributed_type: MULTI_GPU\n"
                                  "parallelism_config: {dp_shard_size: 4}\n")),
      ElementsAre(HasSubstr("only distributed_type: FSDP")));
}

TEST(Accelerate, ParallelismConfigGivesTheDegrees) {
  const AccelerateReading read = ReadAccelerateText(
      "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n"
      "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n"
      "  parallelism_config_dp_shard_size: 4\n  tp_size: 2\n"
      "  parallelism_config_cp_size: 2\n"
      "  parallelism_config_cp_comm_strategy: alltoall\n");
  EXPECT_THAT(Problems(read), IsEmpty());
  EXPECT_EQ(*read.config.mesh.context_parallel_degree, 2);
  EXPECT_EQ(*read.config.mesh.context_parallel_method, "alltoall");
  EXPECT_EQ(*read.config.mesh.data_parallel_replicate_degree, 2);
  EXPECT_EQ(*read.config.mesh.data_parallel_shard_degree, 4);
  EXPECT_EQ(*read.config.mesh.tensor_parallel_degree, 2);
}

TEST(Accelerate, RefusesDeepSpeedSequenceParallelism) {
  EXPECT_THAT(
      Problems(
          ReadAccelerateText("distributed_type: FSDP\nparallelism_config:\n"
                             "  parallelism_config_cp_size: 0\n"
                             "  parallelism_config_sp_size: 2\n")),
      ElementsAre(HasSubstr("cp_size is 0"),
                  AllOf(HasSubstr("sp_size"), HasSubstr("write cp_size"))));
}

TEST(Accelerate, CompilationIsIgnored) {
  const AccelerateReading read = ReadAccelerateText(
      "distributed_type: FSDP\ndynamo_config: {dynamo_backend: INDUCTOR}\n");
  EXPECT_THAT(Problems(read), IsEmpty());
  EXPECT_EQ(read.findings.list().size(), 1u);
  EXPECT_THAT(
      ReadAccelerateText("distributed_type: FSDP\ndynamo_backend: 'NO'\n")
          .findings.list(),
      IsEmpty());
}

TEST(Accelerate, SuggestsTheNearestKeyForUnknownKeys) {
  EXPECT_THAT(Problems(ReadAccelerateText("distributed_type: FSDP\n"
                                          "mixed_precison: bf16\n"
                                          "fsdp_config:\n  fsdp_verson: 2\n")),
              ::testing::UnorderedElementsAre(
                  HasSubstr("did you mean mixed_precision?"),
                  HasSubstr("did you mean fsdp_version?")));
}

TEST(Accelerate, ReportsAllProblemsAtOnce) {
  EXPECT_EQ(Problems(ReadAccelerateText(
                         "distributed_type: FSDP\nnum_processes: x\n"
                         "mixed_precision: bf17\nfsdp_config:\n"
                         "  fsdp_version: 0\n  fsdp_offload_params: si\n"
                         "  fsdp_auto_wrap_policy: LAYERS\n"))
                .size(),
            5u);
}

TEST(Accelerate, WrittenConfigReadsBackUnchanged) {
  AccelerateReading read = ReadAccelerateText(
      "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 16\n"
      "fsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n"
      "  fsdp_reshard_after_forward: false\n"
      "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
      "  fsdp_min_num_params: 1000\n  fsdp_ignored_modules: 'a\\.b|\"c\"'\n"
      "  fsdp_transformer_layer_cls_to_wrap: A,B\n"
      "  fsdp_activation_checkpointing: true\n"
      "  fsdp_activation_checkpointing_offload: true\n"
      "parallelism_config:\n  dp_replicate_size: 2\n  dp_shard_size: 8\n");
  Findings findings;
  const AccelerateReading again =
      ReadAccelerateText(WriteAccelerate(read.config, findings));
  EXPECT_THAT(findings.list(), IsEmpty());
  EXPECT_THAT(Problems(again), IsEmpty());
  EXPECT_TRUE(same_training(read.config, again.config));
}

TEST(Accelerate, WritesActivationOffloadOnlyWithCheckpointing) {
  TrainConfig config;
  config.sharding.reshard_after_forward = ReshardSetting(true);
  config.sharding.activation_cpu_offload = true;
  Findings findings;
  const AccelerateReading again =
      ReadAccelerateText(WriteAccelerate(config, findings));
  ASSERT_EQ(findings.list().size(), 1u);
  EXPECT_THAT(to_string(findings.list()[0]),
              HasSubstr("sharding.activation_cpu_offload is not written"));
  EXPECT_THAT(Problems(again), IsEmpty());
  EXPECT_FALSE(*again.config.sharding.activation_cpu_offload);
}

TEST(Accelerate, ReportsSettingsThatAccelerateCannotExpress) {
  TrainConfig config;
  config.checkpoint.folder = std::string("runs");
  config.precision.param_dtype = std::optional(dcp::DType::kBFloat16);
  config.precision.reduce_dtype = std::optional(dcp::DType::kFloat32);
  config.sharding.auto_wrap_policy = AutoWrapPolicy::kDirectChildren;
  Findings findings;
  const AccelerateReading again =
      ReadAccelerateText(WriteAccelerate(config, findings));
  EXPECT_THAT(Problems(again), IsEmpty());
  EXPECT_THAT(
      Texts(findings, Finding::Kind::kChanged),
      ::testing::UnorderedElementsAre(
          HasSubstr("checkpoint.folder"), HasSubstr("precision.reduce_dtype"),
          HasSubstr("sharding.auto_wrap_policy"),
          HasSubstr("sharding.reshard_after_forward")));
}

}  // namespace
}  // namespace fsdp::config
