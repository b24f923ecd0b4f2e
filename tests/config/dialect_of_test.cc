// SPDX-License-Identifier: Apache-2.0

#include "config/dialect_of.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace fsdp::config {
namespace {

std::optional<ConfigDialect> Detected(absl::string_view name,
                                      absl::string_view text) {
  Findings findings;
  const Node root =
      ParseDocument(name, text, DetectSyntax(name, text), findings);
  EXPECT_FALSE(findings.has_problems()) << text;
  return DetectDialect(ConfigRoot(root));
}

TEST(DetectDialect, SyntaxFollowsTheName) {
  EXPECT_EQ(DetectSyntax("a/b.toml", "{}"), Syntax::kToml);
  EXPECT_EQ(DetectSyntax("b.JSON", "a: 1"), Syntax::kJson);
  EXPECT_EQ(DetectSyntax("b.yaml", "{}"), Syntax::kYaml);
  EXPECT_EQ(DetectSyntax("b.yml", "[a]"), Syntax::kYaml);
}

TEST(DetectDialect, SyntaxFollowsTheTextWithoutAName) {
  EXPECT_EQ(DetectSyntax("config", " {\"a\": 1}"), Syntax::kJson);
  EXPECT_EQ(DetectSyntax("config", "{'a': True}"), Syntax::kYaml);
  EXPECT_EQ(DetectSyntax("config", "[model]\nname = 1"), Syntax::kToml);
  EXPECT_EQ(DetectSyntax("config", "a: 1"), Syntax::kYaml);
  EXPECT_EQ(DetectSyntax("config", ""), Syntax::kYaml);
}

TEST(DetectDialect, KeysDecide) {
  const std::vector<std::pair<std::string, ConfigDialect>> cases = {
      {"distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n",
       ConfigDialect::kAccelerate},
      {"compute_environment: LOCAL_MACHINE\nuse_cpu: false\n",
       ConfigDialect::kAccelerate},
      {"{\"distributed_type\": \"FSDP\"}", ConfigDialect::kAccelerate},
      {"distributed_type: FSDP\nparallelism_config: {}\n",
       ConfigDialect::kAccelerate},
      {"{\"fsdp\": \"full_shard auto_wrap\"}", ConfigDialect::kTransformers},
      {"{\"fsdp\": [\"full_shard\"], \"fsdp_config\": {}}",
       ConfigDialect::kTransformers},
      {"{\"fsdp\": true, \"fsdp_config\": {\"version\": 2}}",
       ConfigDialect::kTransformers},
      {"{\"fsdp\": true, \"fsdp_config\": \"other.json\"}",
       ConfigDialect::kTransformers},
      {"{\"fsdp_config\": {\"activation_checkpointing\": true}}",
       ConfigDialect::kTransformers},
      {"{\"fsdp\": true, \"parallelism_config\": {\"dp_shard_size\": 2}}",
       ConfigDialect::kTransformers},
      {"{\"bf16\": true, \"fsdp_config\": {}, "
       "\"parallelism_config\": {\"tp_size\": 2}}",
       ConfigDialect::kTransformers},
      {"{\"version\": 2, \"reshard_after_forward\": true}",
       ConfigDialect::kTransformers},
      {"{\"output_dir\": \"x\", \"per_device_train_batch_size\": 2, "
       "\"fsdp_config\": {\"version\": 1, "
       "\"sharding_strategy\": \"SHARD_GRAD_OP\"}}",
       ConfigDialect::kTransformers},
      {"{\"fsdp_transformer_layer_cls_to_wrap\": [\"A\"]}",
       ConfigDialect::kTransformers},
      {"parallelism_config:\n  fsdp2: {}\n", ConfigDialect::kComposer},
      {"{'fsdp2': {'reshard_after_forward': True}}", ConfigDialect::kComposer},
      {"{'fsdp': {}}", ConfigDialect::kComposer},
      {"fsdp_config:\n  sharding_strategy: FULL_SHARD\n",
       ConfigDialect::kComposer},
      {"fsdp_config:\n  mixed_precision: PURE\n", ConfigDialect::kComposer},
      {"max_duration: 10ba\nfsdp_config: {activation_checkpointing: true}\n",
       ConfigDialect::kComposer},
      {"[parallelism]\ndata_parallel_shard_degree = -1\n",
       ConfigDialect::kTorchTitan},
      {"{\"training\": {\"steps\": 3, \"seq_len\": 8}}",
       ConfigDialect::kTorchTitan},
  };
  for (const auto& [text, dialect] : cases) {
    EXPECT_EQ(Detected("config", text), dialect) << text;
  }
}

TEST(DetectDialect, SuffixDecidesNothing) {
  EXPECT_EQ(Detected("a.toml", ""), std::nullopt);
  EXPECT_EQ(Detected("Cargo.toml",
                     "[package]\nname = 'x'\n[dependencies]\nserde = '1'\n"),
            std::nullopt);
  EXPECT_EQ(Detected("pyproject.toml",
                     "[project]\nname = 'x'\n[tool.ruff]\nline-length = 80\n"),
            std::nullopt);
  EXPECT_EQ(Detected("a.toml", "[training]\nepochs = 3\n"), std::nullopt);
  EXPECT_EQ(Detected("a.json",
                     "{\"parallelism\": {"
                     "\"tensor_parallel_degree\": 2}}"),
            ConfigDialect::kTorchTitan);
}

TEST(DetectDialect, DetectsAxolotl) {
  EXPECT_EQ(Detected("a.yaml",
                     "base_model: m\nmicro_batch_size: 2\n"
                     "output_dir: out\nbf16: auto\n"),
            ConfigDialect::kAxolotl);
  EXPECT_EQ(Detected("a.yaml",
                     "base_model: m\ndatasets: [{path: p, type: alpaca}]\n"
                     "fsdp: [full_shard, auto_wrap]\n"
                     "fsdp_config: {fsdp_offload_params: true}\n"),
            ConfigDialect::kAxolotl);
  EXPECT_EQ(Detected("a.yaml", "base_model: {type: m}\nadapter: lora\n"),
            std::nullopt);
}

TEST(DetectDialect, AccelerateFilesMayLackTheType) {
  for (const char* text :
       {"mixed_precision: bf16\nfsdp_config: {fsdp_version: 2}\n",
        "fsdp_config: {fsdp_offload_params: true, fsdp_version: 1}\n",
        "rdzv_backend: static\nuse_cpu: false\n"}) {
    EXPECT_EQ(Detected("a.yaml", text), ConfigDialect::kAccelerate) << text;
  }
}

TEST(DetectDialect, RunParametersAreTheConfig) {
  EXPECT_EQ(Detected("a.yaml",
                     "name: run\nimage: i\ncompute: {gpus: 8}\n"
                     "command: composer train.py\n"
                     "parameters:\n  max_duration: 10ba\n"
                     "  fsdp_config: {sharding_strategy: FULL_SHARD}\n"),
            ConfigDialect::kComposer);
}

TEST(DetectDialect, TellsTorchTitanProgramsFromConfigs) {
  EXPECT_TRUE(
      IsTorchTitanProgram("from torchtitan.trainer import Trainer\n\n"
                          "def debug() -> Trainer.Config:\n"
                          "    return Trainer.Config()\n"));
  EXPECT_FALSE(IsTorchTitanProgram("# torchtitan Config.toml\n[training]\n"));
}

TEST(DetectDialect, SharedKeysDecideNothing) {
  for (const char* text :
       {"output_dir: x\n",
        "gradient_checkpointing: true\n",
        "version: 2\n",
        "output_dir: x\ngradient_checkpointing: true\nseed: 1\n",
        "bf16: true\nlearning_rate: 1e-4\n",
        "fsdp: true\n",
        "fsdp_config: other.json\n",
        "fsdp_config: {}\n",
        "state_dict_type: FULL_STATE_DICT\n",
        "num_processes: 8\n",
        "use_cpu: false\n",
        "gpu_ids: all\n",
        "base_model: m\n",
        "micro_batch_size: 2\nsequence_len: 8\n",
        "max_duration: 10ba\n",
        "global_train_batch_size: 8\n",
        "train_loader: {name: text}\n",
        "fsdp: {axis: embed}\nseed: 1\n",
        "parallelism_config: {}\n",
        "training: {steps: 3}\n",
        "parallelism: {}\n",
        "model: {flavor: 8B}\n",
        "checkpoint: {keep_latest_k: 2}\n"}) {
    EXPECT_EQ(Detected("a.yaml", text), std::nullopt) << text;
  }
}

TEST(DetectDialect, OtherFilesHaveNoDialect) {
  EXPECT_EQ(Detected("a.yaml", "services: {web: {}}\nversion: '3'\n"),
            std::nullopt);
  EXPECT_EQ(Detected("a.yaml", ""), std::nullopt);
  EXPECT_EQ(Detected("a.json", "{\"name\": \"x\", \"version\": 3}"),
            std::nullopt);
}

}  // namespace
}  // namespace fsdp::config
