// SPDX-License-Identifier: Apache-2.0
// `dcp-convert --map` requires that config.json names the family, and that the
// model has every tensor that the family's rules require.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/mapping/golden_models.h"
#include "tests/testing/status_matchers.h"
#include "tests/tools/dcp_convert/command_fixture.h"
#include "tools/dcp_convert/commands/commands.h"

namespace dcp {
namespace {

using ::dcp::testing::Arguments;
using ::dcp::testing::CommandFixture;
using ::dcp::testing::GoldenPath;
using ::dcp::testing::With;
using ::testing::AllOf;
using ::testing::HasSubstr;

class MapRequirementsTest : public CommandFixture {
 protected:
  // Makes the checkpoint "lacking" from a golden model, without one tensor.
  void LeaveOut(const std::string& model, const std::string& name) {
    Expect(tools::kExitDone,
           {"convert", GoldenPath(model, "hf.safetensors"), In("lacking"),
            "--to", "dcp", "--exclude", name, "--overwrite"});
  }

  Arguments Map(const std::string& model, const std::string& map,
                const Arguments& more = {}) const {
    return With({"convert", In("lacking"), In("out"), "--to", "dcp", "--map",
                 map, "--config", GoldenPath(model, "config.json")},
                more);
  }
};

TEST_F(MapRequirementsTest, RequiresEveryTensorOfTheFamily) {
  const struct {
    std::string model;
    std::string name;
    std::string map;
    std::string says;
  } cases[] = {
      {"qwen3", "model.layers.1.self_attn.q_norm.weight",
       "qwen-hf-to-torchtitan", "lacks i = 1"},
      {"qwen3", "model.layers.*.self_attn.k_norm.weight", "qwen-hf-to-megatron",
       "nothing is found for "
       "model.layers.{i}.self_attn.k_norm.weight"},
      {"qwen2", "model.layers.*.self_attn.?_proj.bias", "qwen-hf-to-megatron",
       "nothing is found for model.layers.{i}.self_attn.q_proj.bias"},
      {"gpt2", "transformer.ln_f.bias", "gpt2-hf-to-plain", "lacks w = bias"},
      {"gpt2", "transformer.h.*.ln_1.bias", "gpt2-hf-to-megatron",
       "lacks i = 0, w = bias"},
  };
  for (const auto& [model, name, map, says] : cases) {
    SCOPED_TRACE(name);
    LeaveOut(model, name);
    ExpectRefused(Map(model, map), absl::StrCat(says));
    EXPECT_THAT(
        Run(Map(model, map)).err,
        AllOf(HasSubstr("; there is no "),
              HasSubstr(
                  "to map the rest without it, name it in --allow-missing")));
  }
}

TEST_F(MapRequirementsTest, NamedTensorsMayBeMissing) {
  LeaveOut("qwen3", "model.layers.1.self_attn.q_norm.weight");
  ExpectRefused(Map("qwen3", "qwen-hf-to-torchtitan",
                    {"--allow-missing", "model.layers.0.*"}),
                "there is no model.layers.1.self_attn.q_norm.weight");
  const Done done = Run(Map("qwen3", "qwen-hf-to-torchtitan",
                            {"--allow-missing", "*.q_norm.weight", "--json"}));
  EXPECT_EQ(done.code, tools::kExitDone) << done.err;
  EXPECT_THAT(done.out,
              HasSubstr("\"missing\":"
                        "[\"model.layers.1.self_attn.q_norm.weight\"]"));
  const Done two_steps =
      Run(With({"convert", In("out"), In("further"), "--map",
                "qwen-torchtitan-to-megatron", "--config",
                GoldenPath("qwen3", "config.json"), "--allow-missing",
                "layers.1.attention.q_norm.weight", "--plan"},
               {}));
  EXPECT_EQ(two_steps.code, tools::kExitDone) << two_steps.err;
  EXPECT_THAT(two_steps.out,
              HasSubstr("missing, as allowed: layers.1.attention.q_norm"));
  ExpectRefused({"convert", In("out"), In("x"), "--allow-missing", "a"},
                "--allow-missing requires --map");
}

// One tensor is made from it and others.
TEST_F(MapRequirementsTest, PartsOfATensorCannotBeMissing) {
  LeaveOut("qwen3", "model.layers.1.self_attn.k_proj.weight");
  ExpectRefused(
      Map("qwen3", "qwen-hf-to-megatron", {"--allow-missing", "*"}),
      "k_proj.weight is missing where model.layers.1.self_attn.q_proj.weight");
}

TEST_F(MapRequirementsTest, RefusesAnotherFamilyUnlessForced) {
  LeaveOut("qwen3", "*_norm.weight");
  ExpectRefused(Map("qwen3", "llama-hf-to-torchtitan"),
                "config.json says that the type of the model is qwen3 or "
                "Qwen3ForCausalLM, and the mapping llama is for llama; if they "
                "are alike all the same, --force-family says so");
  Expect(tools::kExitDone, {"convert", GoldenPath("llama", "hf.safetensors"),
                            In("llama"), "--to", "safetensors"});
  ExpectRefused({"convert", In("llama"), In("out"), "--to", "dcp", "--map",
                 "llama-hf-to-torchtitan", "--config",
                 GoldenPath("mixtral", "config.json")},
                "--force-family");
  ASSERT_OK_AND_ASSIGN(
      std::string config,
      ReadFile(*fs_, GoldenPath("llama", "config.json"), 1 << 20, true));
  ASSERT_OK(WriteFile(
      *fs_, In("llama/config.json"),
      absl::StrReplaceAll(config, {{"\"llama\"", "\"like_llama\""},
                                   {"LlamaForCausalLM", "LikeForCausalLM"}})));
  const Arguments map = {"convert",
                         In("llama"),
                         In("out"),
                         "--to",
                         "dcp",
                         "--map",
                         "llama-hf-to-torchtitan"};
  ExpectRefused(map, "--force-family");
  Expect(tools::kExitDone, With(map, {"--force-family"}));
}

// transformers reads both.
TEST_F(MapRequirementsTest, PublishedGpt2LacksThePrefix) {
  const std::string whole = GoldenPath("gpt2", "hf.safetensors");
  const std::string config = GoldenPath("gpt2", "config.json");
  Expect(tools::kExitDone, {"convert", whole, In("published.safetensors"),
                            "--rename", "s/^transformer\\.//"});
  for (const std::string& side : {"megatron", "plain"}) {
    const std::string map = absl::StrCat("gpt2-hf-to-", side);
    Expect(tools::kExitDone, {"convert", whole, In("a.safetensors"), "--map",
                              map, "--config", config, "--overwrite"});
    Expect(tools::kExitDone,
           {"convert", In("published.safetensors"), In("b.safetensors"),
            "--map", map, "--config", config, "--overwrite"});
    Expect(tools::kExitDone,
           {"diff", In("a.safetensors"), In("b.safetensors")});
  }
  Expect(tools::kExitDone,
         {"convert", In("published.safetensors"), In("c.safetensors"), "--map",
          "auto", "--to-side", "plain", "--config", config});
  Expect(tools::kExitDone, {"diff", In("b.safetensors"), In("c.safetensors")});
}

}  // namespace
}  // namespace dcp
