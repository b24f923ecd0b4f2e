#include "fsdp/config/dialects/dialect_of.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace fsdp::config {
namespace {

std::optional<Dialect> Detected(absl::string_view name,
                                absl::string_view text) {
  Findings findings;
  const Node root = ParseDocument(name, text, SyntaxOf(name, text), findings);
  EXPECT_FALSE(findings.has_problems()) << text;
  return DialectOf(ConfigRoot(root));
}

TEST(DialectOf, SyntaxFollowsTheName) {
  EXPECT_EQ(SyntaxOf("a/b.toml", "{}"), Syntax::kToml);
  EXPECT_EQ(SyntaxOf("b.JSON", "a: 1"), Syntax::kJson);
  EXPECT_EQ(SyntaxOf("b.yaml", "{}"), Syntax::kYaml);
  EXPECT_EQ(SyntaxOf("b.yml", "[a]"), Syntax::kYaml);
}

TEST(DialectOf, WithoutANameSyntaxFollowsTheText) {
  EXPECT_EQ(SyntaxOf("config", " {\"a\": 1}"), Syntax::kJson);
  EXPECT_EQ(SyntaxOf("config", "{'a': True}"), Syntax::kYaml);
  EXPECT_EQ(SyntaxOf("config", "[model]\nname = 1"), Syntax::kToml);
  EXPECT_EQ(SyntaxOf("config", "a: 1"), Syntax::kYaml);
  EXPECT_EQ(SyntaxOf("config", ""), Syntax::kYaml);
}

TEST(DialectOf, KeysTell) {
  const std::vector<std::pair<std::string, Dialect>> cases = {
      {"distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n",
       Dialect::kAccelerate},
      {"compute_environment: LOCAL_MACHINE\n", Dialect::kAccelerate},
      {"{\"distributed_type\": \"FSDP\"}", Dialect::kAccelerate},
      {"distributed_type: FSDP\nparallelism_config: {}\n",
       Dialect::kAccelerate},
      {"{\"fsdp\": \"full_shard auto_wrap\"}", Dialect::kTransformers},
      {"{\"fsdp\": [\"full_shard\"], \"fsdp_config\": {}}",
       Dialect::kTransformers},
      {"{\"fsdp\": true, \"fsdp_config\": {\"version\": 2}}",
       Dialect::kTransformers},
      {"{\"fsdp_config\": \"other.json\"}", Dialect::kTransformers},
      {"{\"fsdp_config\": {\"activation_checkpointing\": true}}",
       Dialect::kTransformers},
      {"{\"fsdp\": true, \"parallelism_config\": {\"dp_shard_size\": 2}}",
       Dialect::kTransformers},
      {"{\"bf16\": true, \"fsdp_config\": {}, "
       "\"parallelism_config\": {\"tp_size\": 2}}",
       Dialect::kTransformers},
      {"{\"version\": 2}", Dialect::kTransformers},
      {"{\"fsdp_transformer_layer_cls_to_wrap\": [\"A\"]}",
       Dialect::kTransformers},
      {"parallelism_config:\n  fsdp2: {}\n", Dialect::kComposer},
      {"{'fsdp2': {'reshard_after_forward': True}}", Dialect::kComposer},
      {"{'fsdp': {}}", Dialect::kComposer},
      {"fsdp_config:\n  sharding_strategy: FULL_SHARD\n", Dialect::kComposer},
      {"fsdp_config:\n  mixed_precision: PURE\n", Dialect::kComposer},
      {"max_duration: 10ba\nfsdp_config: {activation_checkpointing: true}\n",
       Dialect::kComposer},
      {"[parallelism]\ndata_parallel_shard_degree = -1\n",
       Dialect::kTorchTitan},
      {"{\"parallelism\": {}, \"training\": {}}", Dialect::kTorchTitan},
  };
  for (const auto& [text, dialect] : cases) {
    EXPECT_EQ(Detected("config", text), dialect) << text;
  }
}

TEST(DialectOf, ASuffixDecidesNothing) {
  EXPECT_EQ(Detected("a.toml", ""), std::nullopt);
  EXPECT_EQ(Detected("Cargo.toml",
                     "[package]\nname = 'x'\n[dependencies]\nserde = '1'\n"),
            std::nullopt);
  EXPECT_EQ(Detected("pyproject.toml",
                     "[project]\nname = 'x'\n[tool.ruff]\nline-length = 80\n"),
            std::nullopt);
  EXPECT_EQ(Detected("a.toml", "[training]\nepochs = 3\n"), std::nullopt);
  EXPECT_EQ(Detected("a.toml", "[training]\nsteps = 3\n"),
            Dialect::kTorchTitan);
  EXPECT_EQ(Detected("a.json",
                     "{\"parallelism\": {"
                     "\"tensor_parallel_degree\": 2}}"),
            Dialect::kTorchTitan);
}

TEST(DialectOf, AxolotlsKeysAreAmongItsOwn) {
  EXPECT_EQ(Detected("a.yaml",
                     "base_model: m\nmicro_batch_size: 2\n"
                     "output_dir: out\nbf16: auto\n"),
            Dialect::kAxolotl);
  EXPECT_EQ(Detected("a.yaml",
                     "base_model: m\ndatasets: [{path: p, type: alpaca}]\n"
                     "fsdp: [full_shard, auto_wrap]\n"
                     "fsdp_config: {fsdp_offload_params: true}\n"),
            Dialect::kAxolotl);
  EXPECT_EQ(Detected("a.yaml", "output_dir: x\ngradient_checkpointing: true\n"),
            Dialect::kTransformers);
}

TEST(DialectOf, AcceleratesFilesMayLackTheirType) {
  for (const char* text :
       {"mixed_precision: bf16\nfsdp_config: {fsdp_version: 2}\n",
        "fsdp_config: {fsdp_offload_params: true, fsdp_version: 1}\n",
        "rdzv_backend: static\n", "use_cpu: false\n"}) {
    EXPECT_EQ(Detected("a.yaml", text), Dialect::kAccelerate) << text;
  }
}

TEST(DialectOf, ParametersOfARunAreTheConfig) {
  EXPECT_EQ(Detected("a.yaml",
                     "name: run\nimage: i\ncompute: {gpus: 8}\n"
                     "command: composer train.py\n"
                     "parameters:\n  max_duration: 10ba\n"
                     "  fsdp_config: {sharding_strategy: FULL_SHARD}\n"),
            Dialect::kComposer);
}

TEST(DialectOf, OtherProgramsAreKnownByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"general: {run: r}\nparallelism: {dp: 2, pp: 1, tp: 1}\n", "nanotron"},
      {"general: {run: r}\ntokens: {train_steps: 3}\n", "nanotron"},
      {"model_name_or_path: m\nstage: sft\nfinetuning_type: lora\n"
       "output_dir: o\nbf16: true\n",
       "LLaMA-Factory"},
      {"model_name_or_path: m\ntemplate: llama3\ncutoff_len: 2048\n",
       "LLaMA-Factory"},
      {"{\"zero_optimization\": {\"stage\": 3}}", "DeepSpeed"},
      {"{\"architectures\": [\"LlamaForCausalLM\"]}",
       "a model of transformers (config.json)"},
      {"services: {web: {}}\n", "Docker Compose"},
  };
  for (const auto& [text, name] : cases) {
    Findings findings;
    const Node root =
        ParseDocument("config", text, SyntaxOf("config", text), findings);
    EXPECT_EQ(OtherProgramOf(root), name) << text;
    EXPECT_EQ(DialectOf(root), std::nullopt) << text;
  }
}

TEST(DialectOf, AProgramOfTorchTitanIsToldFromItsConfigs) {
  EXPECT_TRUE(
      IsTorchTitanProgram("from torchtitan.trainer import Trainer\n\n"
                          "def debug() -> Trainer.Config:\n"
                          "    return Trainer.Config()\n"));
  EXPECT_FALSE(IsTorchTitanProgram("# torchtitan Config.toml\n[training]\n"));
}

TEST(DialectOf, OtherFilesAreNone) {
  EXPECT_EQ(Detected("a.yaml", "services: {web: {}}\nversion: '3'\n"),
            std::nullopt);
  EXPECT_EQ(Detected("a.yaml", ""), std::nullopt);
  EXPECT_EQ(Detected("a.json", "{\"name\": \"x\", \"version\": 3}"),
            std::nullopt);
}

}  // namespace
}  // namespace fsdp::config
