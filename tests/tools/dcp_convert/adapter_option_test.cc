// SPDX-License-Identifier: Apache-2.0
// `dcp-convert --adapter`: LoRA adapters from peft and from runs, and adapters
// that cannot be merged as plain LoRA.
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
using ::dcp::testing::GoldenLines;
using ::dcp::testing::GoldenPath;
using ::dcp::testing::LinesOf;
using ::dcp::testing::TensorsIn;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr absl::string_view kPlain =
    R"({"peft_type": "LORA", "r": 4, "lora_alpha": 12)";

class AdapterTest : public CommandFixture {
 protected:
  void SetUp() override {
    ASSERT_OK(fs_->MakeDirectory(In("lora")));
    Copy(Golden("lora/adapter_model.safetensors"),
         "lora/adapter_model.safetensors");
    Configure(absl::StrCat(kPlain, "}"));
  }

  static std::string Golden(const std::string& file) {
    return GoldenPath("lenses", file);
  }

  void Copy(const std::string& from, const std::string& to) {
    ASSERT_OK_AND_ASSIGN(const std::string bytes,
                         ReadFile(*fs_, from, 1 << 20, true));
    ASSERT_OK(WriteFile(*fs_, In(to), bytes));
  }

  // Replaces lora/adapter_config.json.
  void Configure(const std::string& config) {
    ASSERT_OK(WriteFile(*fs_, In("lora/config.new"), config));
    ASSERT_OK(
        fs_->Rename(In("lora/config.new"), In("lora/adapter_config.json")));
  }

  Arguments Merge(const std::string& adapter, const std::string& to) const {
    return {"convert", Golden("lora_base.safetensors"), In(to), "--adapter",
            adapter};
  }

  // The result must equal peft's for the same adapter.
  void ExpectMerged(const std::string& adapter, const std::string& to) {
    Expect(tools::kExitDone, Merge(adapter, to));
    EXPECT_THAT(LinesOf(TensorsIn(In(to))),
                ElementsAreArray(GoldenLines("lenses", "lora_merged")));
  }

  void ExpectNotMerged(const std::string& adapter, const std::string& says) {
    ExpectRefused(Merge(adapter, "refused.safetensors"), says);
  }
};

// peft changed the model's weights first, and one key says so.
TEST_F(AdapterTest, RefusesAdaptersThatChangedTheBaseWeights) {
  for (const std::string& init : {"pissa", "olora"}) {
    ExpectNotMerged(Golden(init),
                    absl::StrCat("init_lora_weights is '", init, "'"));
  }
  for (const std::string& init :
       {"pissa_niter_4", "corda", "loftq", "lora_ga", "new"}) {
    Configure(absl::StrCat(kPlain, ", \"init_lora_weights\": \"", init, "\"}"));
    ExpectNotMerged(In("lora"),
                    absl::StrCat("init_lora_weights is '", init, "'"));
  }
}

TEST_F(AdapterTest, MergesAdaptersOnTheBaseWeights) {
  for (const std::string& init : {"true", "false", "null", "\"gaussian\"",
                                  "\"orthogonal\"", "\"eva\"", "\"mica\""}) {
    SCOPED_TRACE(init);
    Configure(absl::StrCat(kPlain, ", \"init_lora_weights\": ", init, "}"));
    ExpectMerged(In("lora"), "merged.safetensors");
    ASSERT_OK(fs_->Remove(In("merged.safetensors")));
  }
}

TEST_F(AdapterTest, RefusesUnknownKeysUnlessOff) {
  for (const std::string& setting :
       {"\"use_dora\": true", "\"alora_invocation_tokens\": [1, 2]",
        "\"arrow_config\": {\"top_k\": 3}", "\"use_qalora\": true",
        "\"ensure_weight_tying\": true", "\"megatron_config\": {\"a\": 1}",
        "\"rank_pattern\": {\"q_proj\": 8}", "\"bias\": \"all\"",
        "\"modules_to_save\": [\"lm_head\"]", "\"fan_in_fan_out\": true",
        "\"velora_config\": {\"a\": 1}", "\"what_peft_may_add\": 3"}) {
    Configure(absl::StrCat(kPlain, ", ", setting, "}"));
    const std::string key = setting.substr(1, setting.find('"', 1) - 1);
    ExpectNotMerged(In("lora"),
                    absl::StrCat("adapter_config.json: ", key, " is "));
  }
  Configure(absl::StrCat(kPlain,
                         ", \"what_peft_may_add\": null, \"use_more\": false, "
                         "\"base_model_name_or_path\": \"a/b\", "
                         "\"target_modules\": [\"q_proj\"]}"));
  ExpectMerged(In("lora"), "merged.safetensors");
}

TEST_F(AdapterTest, RefusesInvalidAdapterConfigs) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"peft_type": "IA3", "r": 4, "lora_alpha": 8})", "not LORA"},
      {R"({"peft_type": "LORA", "r": 8, "lora_alpha": 8})", "says r = 8"},
      {R"({"peft_type": "LORA", "r": 4})", "lora_alpha is not a number"},
      {R"({"peft_type": "LORA", "r": -4, "lora_alpha": 8})",
       "r is not a whole"},
      {R"([1])", "keys and values"},
      {R"({"peft_type")", "adapter_config.json"},
  };
  for (const auto& [config, says] : cases) {
    Configure(config);
    ExpectNotMerged(In("lora"), says);
  }
  ASSERT_OK(fs_->Remove(In("lora/adapter_config.json")));
  ExpectNotMerged(In("lora"), "there is no adapter_config.json in ");
}

TEST_F(AdapterTest, MergesOneAdapterAtATime) {
  Arguments both = Merge(In("lora"), "x.safetensors");
  both.insert(both.end(), {"--adapter", Golden("lora")});
  ExpectRefused(both, "--adapter is given twice");
}

// A Trainer's checkpoint has an optimizer and more next to the adapter.
TEST_F(AdapterTest, ReadsAnAdapterInATrainerCheckpoint) {
  for (const std::string& name :
       {"trainer_state.json", "optimizer.pt", "scheduler.pt"}) {
    ASSERT_OK(WriteFile(*fs_, In(absl::StrCat("lora/", name)), "{}"));
  }
  ExpectMerged(In("lora"), "merged.safetensors");
  ExpectMerged(In("lora/adapter_model.safetensors"), "same.safetensors");
}

TEST_F(AdapterTest, ReadsAnAdapterInTheHubCache) {
  const std::string hub = In("models--org--name");
  for (const char* folder : {"", "/snapshots", "/snapshots/0123abcd"}) {
    ASSERT_OK(fs_->MakeDirectory(absl::StrCat(hub, folder)));
  }
  for (const char* name :
       {"adapter_model.safetensors", "adapter_config.json"}) {
    Copy(In(absl::StrCat("lora/", name)),
         absl::StrCat("models--org--name/snapshots/0123abcd/", name));
  }
  ExpectMerged(hub, "merged.safetensors");
}

// With the names from peft's model in an FSDP run: the adapter's name,
// wrappers, and weights that peft does not train.
TEST_F(AdapterTest, ReadsAnAdapterInARunCheckpoint) {
  const std::string adapter = In("lora/adapter_model.safetensors");
  ASSERT_OK(fs_->MakeDirectory(In("step")));
  Expect(tools::kExitDone,
         {"convert", adapter, In("step/checkpoint"), "--to", "dcp", "--mesh",
          "dp=3", "--rename", "s/^/model./", "--rename",
          "s/layers.0/_orig_mod.layers.0._fsdp_wrapped_module/", "--rename",
          R"(s/\.lora_([AB])\.weight/.lora_\1.default.weight/)"});
  ASSERT_OK_AND_ASSIGN(
      const std::string config,
      ReadFile(*fs_, In("lora/adapter_config.json"), 1 << 20, true));
  ASSERT_OK(WriteFile(*fs_, In("step/adapter_config.json"), config));
  ExpectMerged(In("step/checkpoint"), "merged.safetensors");
}

TEST_F(AdapterTest, NamesTensorsThatBelongToNeither) {
  const std::string adapter = In("lora/adapter_model.safetensors");
  const auto renamed = [&](const std::string& rename) {
    Expect(tools::kExitDone, {"convert", adapter, In("renamed/a.safetensors"),
                              "--rename", rename, "--overwrite"});
    EXPECT_OK(
        WriteFile(*fs_, In("renamed/config.new"), absl::StrCat(kPlain, "}")));
    EXPECT_OK(fs_->Rename(In("renamed/config.new"),
                          In("renamed/adapter_config.json")));
  };
  ASSERT_OK(fs_->MakeDirectory(In("renamed")));
  renamed("s/layers.0.mlp.down_proj.lora_A.weight/norm.weight/");
  ExpectNotMerged(In("renamed"), "norm.weight is neither NAME.lora_A.weight");
  renamed(
      "s/layers.0.mlp.down_proj.lora_A.weight/"
      "layers.0.mlp.down_proj.base_layer.weight/");
  ExpectNotMerged(In("renamed"),
                  "lacks model.layers.0.mlp.down_proj.lora_A.weight");
  renamed(
      "s/layers.0.mlp.down_proj.lora_(.).weight/"
      "layers.0.mlp.down_proj.lora_\\1.other.weight/");
  ExpectNotMerged(In("renamed"), "has several adapters: , other");
  renamed("s/layers.0.mlp.down_proj.lora/layers.7.mlp.down_proj.lora/");
  ExpectNotMerged(In("renamed"),
                  "changes model.layers.7.mlp.down_proj.weight, which the "
                  "model does not have");
}

}  // namespace
}  // namespace dcp
