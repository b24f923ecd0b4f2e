// SPDX-License-Identifier: Apache-2.0

#include "config/to_fsdp2/to_fsdp2.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "config/read_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Texts(const Findings& findings) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings.list()) {
    texts.push_back(to_string(finding));
  }
  return texts;
}

// The result, which must be version 2 and train the same.
std::string Converted(absl::string_view text,
                      absl::string_view name = "f.yaml") {
  const ToFsdp2 result = to_fsdp2(name, text);
  EXPECT_FALSE(result.findings.has_problems())
      << result.findings.ToStatus() << "\n"
      << text;
  const ReadConfig before = read_config_text(name, text);
  const ReadConfig after = read_config_text(name, result.text);
  EXPECT_FALSE(after.findings.has_problems()) << result.text;
  EXPECT_EQ(*after.config.sharding.fsdp_version, 2) << result.text;
  EXPECT_TRUE(same_training(before.config, after.config)) << result.text;
  // A converted config is not converted again.
  EXPECT_EQ(to_fsdp2(name, result.text).text, result.text);
  return result.text;
}

void ExpectProblem(absl::string_view text, absl::string_view part,
                   absl::string_view name = "f.yaml") {
  const ToFsdp2 result = to_fsdp2(name, text);
  EXPECT_TRUE(result.findings.has_problems()) << text;
  EXPECT_EQ(result.text, text);
  EXPECT_THAT(Texts(result.findings), Contains(HasSubstr(std::string(part))));
}

constexpr absl::string_view kBefore = R"(# Our cluster.
compute_environment: LOCAL_MACHINE
distributed_type: "FSDP"   # always

fsdp_config:
  # What is gathered when.
  fsdp_sharding_strategy: SHARD_GRAD_OP  # ZeRO-2
  fsdp_backward_prefetch: BACKWARD_PRE  # overlaps

  'fsdp_offload_params': False
  fsdp_use_orig_params: true
  # Names of layers.
  fsdp_transformer_layer_cls_to_wrap:
    - LlamaDecoderLayer
    # and
    - Embedding
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sync_module_states: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_version: 1   # of two
  # The end.
mixed_precision: 'bf16'
num_processes: 8
)";
constexpr absl::string_view kAfter = R"(# Our cluster.
compute_environment: LOCAL_MACHINE
distributed_type: "FSDP"   # always

fsdp_config:
  # What is gathered when.
  fsdp_reshard_after_forward: false  # ZeRO-2
  # fsdp_backward_prefetch: BACKWARD_PRE  # overlaps

  'fsdp_offload_params': False
  # Names of layers.
  fsdp_transformer_layer_cls_to_wrap:
    - LlamaDecoderLayer
    # and
    - Embedding
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_version: 2   # of two
  # The end.
mixed_precision: 'bf16'
num_processes: 8
)";

TEST(ToFsdp2, KeepsCommentsOrderQuotesAndOtherKeys) {
  EXPECT_EQ(Converted(kBefore), kAfter);
}

TEST(ToFsdp2, KeepsLineEndings) {
  const std::string before = absl::StrReplaceAll(kBefore, {{"\n", "\r\n"}});
  EXPECT_EQ(Converted(before), absl::StrReplaceAll(kAfter, {{"\n", "\r\n"}}));
}

TEST(ToFsdp2, AddsNoFinalNewline) {
  EXPECT_EQ(Converted("distributed_type: FSDP\nfsdp_config:\n"
                      "  fsdp_state_dict_type: FULL_STATE_DICT"),
            "distributed_type: FSDP\nfsdp_config:\n"
            "  fsdp_state_dict_type: FULL_STATE_DICT\n  fsdp_version: 2");
  EXPECT_EQ(Converted("distributed_type: FSDP\nfsdp_config:\n"
                      "  fsdp_state_dict_type: FULL_STATE_DICT\n"
                      "  fsdp_use_orig_params: true"),
            "distributed_type: FSDP\nfsdp_config:\n"
            "  fsdp_state_dict_type: FULL_STATE_DICT\n  fsdp_version: 2");
}

TEST(ToFsdp2, EachChangeHasItsReason) {
  EXPECT_THAT(
      Texts(to_fsdp2("f.yaml", kBefore).findings),
      ElementsAre(
          HasSubstr("f.yaml:7: fsdp_config.fsdp_sharding_strategy becomes "
                    "fsdp_reshard_after_forward: false"),
          HasSubstr("f.yaml:8: fsdp_config.fsdp_backward_prefetch is dropped"),
          HasSubstr("f.yaml:11: fsdp_config.fsdp_use_orig_params is dropped"),
          HasSubstr("f.yaml:18: fsdp_config.fsdp_sync_module_states")));
}

struct Row {
  absl::string_view before;  // the fsdp_config, in braces
  absl::string_view after;
};

// The results from accelerate's to-fsdp2 for the same maps. If ours differs,
// the row says so, and to_fsdp2.h explains why.
const std::vector<Row>& RowsOfAccelerate() {
  static const std::vector<Row>& rows = *new std::vector<Row>{
      {"fsdp_sharding_strategy: FULL_SHARD, fsdp_version: 1",
       "fsdp_reshard_after_forward: true, fsdp_version: 2"},
      {"fsdp_sharding_strategy: SHARD_GRAD_OP, fsdp_version: 1",
       "fsdp_reshard_after_forward: false, fsdp_version: 2"},
      {"fsdp_reshard_after_forward: FULL_SHARD, fsdp_version: 1",
       "fsdp_reshard_after_forward: true, fsdp_version: 2"},
      {"fsdp_reshard_after_forward: SHARD_GRAD_OP, fsdp_version: 1",
       "fsdp_reshard_after_forward: false, fsdp_version: 2"},
      {"fsdp_sharding_strategy: HYBRID_SHARD, fsdp_version: 1",
       "fsdp_reshard_after_forward: true, fsdp_version: 2"},
      {"fsdp_sharding_strategy: HYBRID_SHARD_ZERO2, fsdp_version: 1",
       "fsdp_reshard_after_forward: false, fsdp_version: 2"},
      {"fsdp_version: 1, fsdp_backward_prefetch: BACKWARD_PRE",
       "fsdp_version: 2"},
      {"fsdp_version: 1, fsdp_backward_prefetch: BACKWARD_POST",
       "fsdp_version: 2"},
      {"fsdp_forward_prefetch: true, fsdp_version: 1", "fsdp_version: 2"},
      {"fsdp_sync_module_states: true, fsdp_version: 1", "fsdp_version: 2"},
      {"fsdp_use_orig_params: false, fsdp_version: 1", "fsdp_version: 2"},
      {"fsdp_cpu_ram_efficient_loading: false, fsdp_version: 1",
       "fsdp_cpu_ram_efficient_loading: false, fsdp_version: 2"},
      {"fsdp_offload_params: 'true', fsdp_version: 1",
       "fsdp_offload_params: 'true', fsdp_version: 2"},
      {"fsdp_auto_wrap_policy: SIZE_BASED_WRAP, fsdp_min_num_params: 2000, "
       "fsdp_version: 1",
       "fsdp_auto_wrap_policy: SIZE_BASED_WRAP, fsdp_min_num_params: 2000, "
       "fsdp_version: 2"},
      {"fsdp_transformer_layer_cls_to_wrap: 'A,B', fsdp_version: 1",
       "fsdp_transformer_layer_cls_to_wrap: 'A,B', fsdp_version: 2"},
      {"fsdp_activation_checkpointing: true, fsdp_version: 1",
       "fsdp_activation_checkpointing: true, fsdp_version: 2"},
      {"fsdp_ignored_modules: 'a.*', fsdp_version: 1",
       "fsdp_ignored_modules: 'a.*', fsdp_version: 2"},
      // Without a version accelerate adds one as well.
      {"fsdp_sharding_strategy: FULL_SHARD",
       "fsdp_reshard_after_forward: true, fsdp_version: 2"},
      // Differs: numbers, and names in lower case.
      {"fsdp_sharding_strategy: 2, fsdp_version: 1",
       "fsdp_reshard_after_forward: false, fsdp_version: 2"},
      {"fsdp_sharding_strategy: '1', fsdp_version: 1",
       "fsdp_reshard_after_forward: true, fsdp_version: 2"},
      {"fsdp_sharding_strategy: full_shard, fsdp_version: 1",
       "fsdp_reshard_after_forward: true, fsdp_version: 2"},
      // Differs: names without fsdp_.
      {"sharding_strategy: FULL_SHARD, use_orig_params: true, version: 1",
       "reshard_after_forward: true, version: 2"},
      // Differs: options that nothing reads.
      {"fsdp_limit_all_gathers: true, fsdp_version: 1", "fsdp_version: 2"},
      {"fsdp_version: 1, fsdp_backward_prefetch_policy: BACKWARD_PRE",
       "fsdp_version: 2"},
      // Two options that agree.
      {"fsdp_sharding_strategy: FULL_SHARD, fsdp_reshard_after_forward: 1, "
       "fsdp_version: 1",
       "fsdp_reshard_after_forward: true, fsdp_version: 2"},
  };
  return rows;
}

TEST(ToFsdp2, OptionsMatchAccelerate) {
  constexpr absl::string_view kFull = "fsdp_state_dict_type: FULL_STATE_DICT";
  constexpr absl::string_view kAround =
      "distributed_type: FSDP\nnum_machines: 1\nnum_processes: 4\n"
      "fsdp_config: {";
  for (const Row& row : RowsOfAccelerate()) {
    const absl::string_view first = absl::StrContains(row.before, ", version")
                                        ? "state_dict_type: "
                                          "FULL_STATE_DICT"
                                        : kFull;
    EXPECT_EQ(
        Converted(absl::StrCat(kAround, first, ", ", row.before, "} # c\n")),
        absl::StrCat(kAround, first, ", ", row.after, "} # c\n"));
    // The same options, one per line.
    const auto in_lines = [&](absl::string_view options) {
      const std::string lines = absl::StrReplaceAll(
          absl::StrCat(first, ", ", options), {{", ", "\n    "}});
      return absl::StrCat("fsdp_config:\n    ", lines,
                          "\ndistributed_type: FSDP\nnum_machines: 1\n");
    };
    EXPECT_EQ(Converted(in_lines(row.before)), in_lines(row.after));
  }
}

TEST(ToFsdp2, WritesVersion1StateDictType) {
  EXPECT_EQ(Converted("distributed_type: FSDP\nfsdp_config:\n"
                      "  fsdp_version: 1\nnum_processes: 2\n"),
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
            "  fsdp_state_dict_type: FULL_STATE_DICT\nnum_processes: 2\n");
}

TEST(ToFsdp2, AddsOptionsToAFileWithoutAny) {
  constexpr absl::string_view kOptions =
      "{fsdp_version: 2, fsdp_state_dict_type: FULL_STATE_DICT}";
  EXPECT_EQ(
      Converted("distributed_type: FSDP\n"),
      absl::StrCat("distributed_type: FSDP\nfsdp_config: ", kOptions, "\n"));
  EXPECT_EQ(
      Converted("fsdp_config: {}\ndistributed_type: FSDP\n"),
      absl::StrCat("fsdp_config: ", kOptions, "\ndistributed_type: FSDP\n"));
  EXPECT_EQ(
      Converted("fsdp_config:\ndistributed_type: FSDP\n"),
      absl::StrCat("fsdp_config: ", kOptions, "\ndistributed_type: FSDP\n"));
}

TEST(ToFsdp2, KeepsTheVersionWhenAllOptionsGo) {
  EXPECT_EQ(Converted("distributed_type: FSDP\n"
                      "fsdp_config: {fsdp_use_orig_params: true}\n"),
            "distributed_type: FSDP\n"
            "fsdp_config: {fsdp_version: 2, "
            "fsdp_state_dict_type: FULL_STATE_DICT}\n");
}

TEST(ToFsdp2, AddsDegreesForHybridShardOnSeveralMachines) {
  EXPECT_EQ(
      Converted("distributed_type: FSDP\nfsdp_config:\n"
                "  fsdp_sharding_strategy: HYBRID_SHARD\n"
                "  fsdp_state_dict_type: FULL_STATE_DICT\n"
                "  fsdp_version: 1\nnum_machines: 2\nnum_processes: 16\n"),
      "distributed_type: FSDP\nfsdp_config:\n"
      "  fsdp_reshard_after_forward: true\n"
      "  fsdp_state_dict_type: FULL_STATE_DICT\n"
      "  fsdp_version: 2\nnum_machines: 2\nnum_processes: 16\n"
      "parallelism_config: {parallelism_config_dp_replicate_size: 2, "
      "parallelism_config_dp_shard_size: 8}\n");
}

TEST(ToFsdp2, ReportsSettingsThatFsdp2CannotExpress) {
  constexpr absl::string_view kAround = "distributed_type: FSDP\nfsdp_config: ";
  ExpectProblem(absl::StrCat(kAround, "{fsdp_sharding_strategy: NO_SHARD}\n"),
                "shards nothing");
  ExpectProblem(absl::StrCat(kAround,
                             "{fsdp_sharding_strategy: HYBRID_SHARD}\n"
                             "num_machines: 2\n"),
                "num_processes");
  ExpectProblem(
      absl::StrCat(kAround, "{fsdp_state_dict_type: LOCAL_STATE_DICT}\n"),
      "LOCAL_STATE_DICT");
}

TEST(ToFsdp2, KeepsVersion2FilesUnchanged) {
  const std::string text =
      "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n";
  const ToFsdp2 result = to_fsdp2("f.yaml", text);
  EXPECT_EQ(result.text, text);
  EXPECT_THAT(result.findings.list(), IsEmpty());
}

TEST(ToFsdp2, RepairsVersion1OptionsInVersion2Files) {
  const std::string text =
      "distributed_type: FSDP\n"
      "fsdp_config:\n"
      "  fsdp_version: 2\n"
      "  fsdp_backward_prefetch: BACKWARD_PRE\n"
      "  fsdp_reshard_after_forward: SHARD_GRAD_OP\n"
      "  fsdp_sharding_strategy: FULL_SHARD\n"
      "  fsdp_use_orig_params: true\n";
  // The reader refuses this and recommends to_fsdp2.
  EXPECT_THAT(Texts(read_config_text("f.yaml", text).findings),
              Contains(HasSubstr("to-fsdp2")));
  const ToFsdp2 result = to_fsdp2("f.yaml", text);
  EXPECT_EQ(result.text,
            "distributed_type: FSDP\n"
            "fsdp_config:\n"
            "  fsdp_version: 2\n"
            "  fsdp_reshard_after_forward: false\n");
  EXPECT_EQ(result.findings.list().size(), 4u);
  EXPECT_FALSE(result.findings.has_problems());
  const ToFsdp2 again = to_fsdp2("f.yaml", result.text);
  EXPECT_EQ(again.text, result.text);
  EXPECT_THAT(again.findings.list(), IsEmpty());
}

TEST(ToFsdp2, DoesNotGuessCopiesInVersion2Files) {
  ExpectProblem(
      "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
      "  fsdp_reshard_after_forward: HYBRID_SHARD\n",
      "parallelism_config");
}

TEST(ToFsdp2, DoesNotShardFilesWithCopies) {
  ExpectProblem("distributed_type: MULTI_GPU\n", "shards nothing");
  ExpectProblem("{\"bf16\": true, \"num_train_epochs\": 1}", "shards nothing",
                "f.json");
}

TEST(ToFsdp2, AxolotlsOptionsMatchAccelerate) {
  EXPECT_EQ(Converted("base_model: m\nmicro_batch_size: 1\n"
                      "fsdp_config:\n"
                      "  fsdp_limit_all_gathers: true\n"
                      "  fsdp_sharding_strategy: FULL_SHARD\n"
                      "  fsdp_state_dict_type: FULL_STATE_DICT\n"),
            "base_model: m\nmicro_batch_size: 1\n"
            "fsdp_config:\n"
            "  fsdp_reshard_after_forward: true\n"
            "  fsdp_state_dict_type: FULL_STATE_DICT\n"
            "  fsdp_version: 2\n");
}

TEST(ToFsdp2, ReportsProblemsInTheFile) {
  ExpectProblem("distributed_type: FSDP\nfsdp_config:\n  fsdp_verson: 1\n",
                "did you mean fsdp_version?");
  ExpectProblem("distributed_type: FSDP\nfsdp_config: {fsdp_version: 1\n", "");
  ExpectProblem("[parallelism]\n", "TorchTitan", "f.toml");
}

TEST(ToFsdp2, RefusesLayoutsThatCannotBeEdited) {
  ExpectProblem(
      "distributed_type: FSDP\nfsdp_config: {fsdp_version: 1, # one\n"
      "  fsdp_use_orig_params: true}\n",
      "comments between its braces");
  ExpectProblem("distributed_type: FSDP\nfsdp_config: &a\n  fsdp_version: 1\n",
                "");
}

TEST(ToFsdp2, BracesMaySpanSeveralLines) {
  EXPECT_EQ(Converted("distributed_type: FSDP\nfsdp_config: {\n"
                      "  fsdp_use_orig_params: true,\n"
                      "  fsdp_state_dict_type: FULL_STATE_DICT,\n"
                      "  fsdp_sync_module_states: true\n}\n"),
            "distributed_type: FSDP\nfsdp_config: {\n"
            "  fsdp_state_dict_type: FULL_STATE_DICT,\n"
            "  fsdp_version: 2\n}\n");
}

TEST(ToFsdp2, ConvertsAccelerateJson) {
  EXPECT_EQ(Converted("{\n  \"distributed_type\": \"FSDP\",\n"
                      "  \"fsdp_config\": {\n"
                      "    \"fsdp_sharding_strategy\": \"SHARD_GRAD_OP\",\n"
                      "    \"fsdp_use_orig_params\": true\n  }\n}\n",
                      "f.json"),
            "{\n  \"distributed_type\": \"FSDP\",\n  \"fsdp_config\": {\n"
            "    \"fsdp_reshard_after_forward\": false,\n"
            "    \"fsdp_version\": 2,\n"
            "    \"fsdp_state_dict_type\": \"FULL_STATE_DICT\"\n  }\n}\n");
}

TEST(ToFsdp2, ConvertsTransformersJson) {
  EXPECT_EQ(Converted("{\"fsdp\": true, \"fsdp_config\": {\"version\": 1, "
                      "\"reshard_after_forward\": \"shard_grad_op\", "
                      "\"limit_all_gathers\": true}, \"bf16\": true}",
                      "f.json"),
            "{\"fsdp\": true, \"fsdp_config\": {\"version\": 2, "
            "\"reshard_after_forward\": false}, \"bf16\": true}");
  EXPECT_EQ(Converted("{\"version\": 1, \"backward_prefetch\": "
                      "\"BACKWARD_PRE\", \"cpu_offload\": true}",
                      "f.json"),
            "{\"version\": 2, \"cpu_offload\": true}");
}

// Composer's Trainer looks for no other name in a map.
TEST(ToFsdp2, KeepsTheNameOfComposersBlock) {
  EXPECT_EQ(Converted("precision: amp_bf16\nparallelism_config:\n"
                      "  fsdp:  # since May\n"
                      "    sharding_strategy: SHARD_GRAD_OP\n"
                      "    activation_checkpointing: true\n"
                      "    limit_all_gathers: true\n"
                      "    data_parallel_shard_degree: -1\n"
                      "    mixed_precision: PURE\n"),
            "precision: amp_bf16\nparallelism_config:\n"
            "  fsdp:  # since May\n"
            "    reshard_after_forward: false\n"
            "    activation_checkpointing: true\n"
            "    mixed_precision: PURE\n"
            "    state_dict_type: full\n");
}

TEST(ToFsdp2, MarksComposersBlockForFsdp2) {
  const ToFsdp2 converted = to_fsdp2(
      "run.yaml",
      "parallelism_config:\n  fsdp: {activation_checkpointing: true}\n");
  EXPECT_EQ(converted.text,
            "parallelism_config:\n  fsdp: {activation_checkpointing: true, "
            "reshard_after_forward: true, state_dict_type: full}\n");
  EXPECT_THAT(Texts(converted.findings),
              Contains(HasSubstr("parallelism_config.fsdp is for FSDP2 if "
                                 "Composer finds FSDP_VERSION=2")));
}

TEST(ToFsdp2, RefusesProgramsWithoutFsdp1) {
  for (const auto& [text, problem] :
       {std::pair("optimizer: {_component_: torch.optim.AdamW, lr: 1e-5}\n",
                  "is a config of torchtune, which has no FSDP1"),
        std::pair("actor_rollout_ref: {actor: {strategy: fsdp}}\n",
                  "is a config of verl; write strategy: fsdp2")}) {
    EXPECT_THAT(Texts(to_fsdp2("run.yaml", text).findings),
                Contains(HasSubstr(problem)));
  }
}

TEST(ToFsdp2, ConvertsComposersPythonDict) {
  EXPECT_EQ(Converted("parallelism_config = {\n    'fsdp': {\n"
                      "        'sharding_strategy': 'FULL_SHARD',\n"
                      "        'cpu_offload': False,\n"
                      "        'state_dict_type': 'sharded',\n    },\n}\n",
                      "f.py"),
            "parallelism_config = {\n    'fsdp': {\n"
            "        'reshard_after_forward': True,\n"
            "        'state_dict_type': 'sharded',\n    },\n}\n");
}

}  // namespace
}  // namespace fsdp
