#include "fsdp/config/dialect_of.h"

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
  return DialectOf(name, root);
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

TEST(DialectOf, TomlIsTorchTitans) {
  EXPECT_EQ(Detected("a.toml", ""), Dialect::kTorchTitan);
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
