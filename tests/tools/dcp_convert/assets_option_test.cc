// SPDX-License-Identifier: Apache-2.0
// Config, tokenizer and generation files: dcp-convert copies them when it
// converts a checkpoint that does not have them.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
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
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

// A checkpoint as TorchTitan saves it, and the base model's folder.
class AssetsTest : public CommandFixture {
 protected:
  AssetsTest() {
    Expect(tools::kExitDone,
           {"convert", GoldenPath("llama", "hf.safetensors"), In("run"), "--to",
            "dcp", "--map", "llama-hf-to-torchtitan"});
    config_ =
        *ReadFile(*fs_, GoldenPath("llama", "config.json"), 1 << 20, true);
    EXPECT_OK(fs_->MakeDirectory(In("base")));
    Write("base/config.json", config_);
    Write("base/tokenizer.json", "{}");
    Write("base/generation_config.json", "{}");
    Write("base/model.safetensors", "other weights");
    Write("base/modeling.py", "import os");
  }

  void Write(const std::string& name, absl::string_view text) {
    EXPECT_OK(WriteFile(*fs_, In(name), text));
  }

  // All files in the folder except weights and digests.
  std::vector<std::string> AssetNames(const std::string& name) {
    std::vector<std::string> names;
    const std::vector<DirectoryEntry> entries = *fs_->List(In(name));
    for (const DirectoryEntry& entry : entries) {
      if (entry.name != "model.safetensors" && entry.name != ".digests") {
        names.push_back(entry.name);
      }
    }
    return names;
  }

  Arguments Back(const std::string& out) {
    return {"convert",
            In("run"),
            In(out),
            "--to",
            "safetensors",
            "--map",
            "llama-torchtitan-to-hf",
            "--config",
            In("base/config.json")};
  }

  std::string ReadText(const std::string& name) {
    return *ReadFile(*fs_, In(name), 1 << 20, true);
  }

  std::string config_;
};

TEST_F(AssetsTest, AreCopiedFromNextToTheConfig) {
  const Done done = Run(Back("out"));
  EXPECT_EQ(done.code, tools::kExitDone) << done.err;
  EXPECT_THAT(AssetNames("out"),
              UnorderedElementsAre("config.json", "tokenizer.json",
                                   "generation_config.json"));
  EXPECT_EQ(ReadText("out/config.json"), config_);
  EXPECT_THAT(done.out, HasSubstr("because it is code: modeling.py"));
  Expect(tools::kExitDone, With(Back("bare"), {"--no-copy-config"}));
  EXPECT_THAT(AssetNames("bare"), UnorderedElementsAre());
  // A file with another name only provides the numbers.
  Write("base/other.json", config_);
  Arguments other = Back("other");
  other.back() = In("base/other.json");
  Expect(tools::kExitDone, other);
  EXPECT_THAT(AssetNames("other"), UnorderedElementsAre());
}

TEST_F(AssetsTest, AreCopiedFromAnotherFolderWithAndWithoutAMapping) {
  ASSERT_OK(fs_->MakeDirectory(In("more")));
  Write("more/vocab.json", "[]");
  const Arguments assets = {"--assets", In("more")};
  Expect(tools::kExitDone, With(Back("out"), assets));
  EXPECT_THAT(AssetNames("out"), UnorderedElementsAre("vocab.json"));
  Expect(
      tools::kExitDone,
      With({"convert", In("run"), In("plain"), "--to", "safetensors"}, assets));
  EXPECT_THAT(AssetNames("plain"), UnorderedElementsAre("vocab.json"));
}

TEST_F(AssetsTest, RefusesFilesThatCannotBeCopied) {
  ASSERT_OK(fs_->MakeDirectory(In("empty")));
  const std::pair<Arguments, std::string> cases[] = {
      {{"--assets", In("none")}, "none"},
      {{"--assets", In("empty")}, "empty has no config, tokenizer or gen"},
      {{"--assets", In("base"), "--no-copy-config"}, "give only one"},
      {{"--assets", In("base"), "--server", "unix:/x"}, "of this machine"},
  };
  for (const auto& [more, says] : cases) {
    ExpectRefused(With(Back("out"), more), says);
  }
  const Arguments one = {"--assets", In("base")};
  ExpectRefused(With({"convert", In("run"), In("a.safetensors")}, one),
                "requires a directory of safetensors");
  ExpectRefused(With({"convert", In("run"), In("out"), "--plan"}, one),
                "becomes dcp");
}

// The base model's config says how to read the codes.
TEST_F(AssetsTest, ConfigLosesQuantizationIfTheModelIsNotQuantized) {
  const std::string start = "{\"quantization_config\": {\"a\": 1}, ";
  ASSERT_EQ(config_[0], '{');
  ASSERT_OK(fs_->Remove(In("base/config.json")));
  Write("base/config.json", start + config_.substr(1));
  const Done done = Run(Back("out"));
  EXPECT_EQ(done.code, tools::kExitDone) << done.err;
  EXPECT_EQ(ReadText("out/config.json"), "{ " + config_.substr(1));
  EXPECT_THAT(done.out, HasSubstr("left out of config.json, because it is not "
                                  "so in the result: quantization_config"));
  EXPECT_THAT(Run(With(Back("plan"), {"--plan", "--json"})).out,
              HasSubstr(R"("dropped_config":["quantization_config"])"));
  // If the tensors may be codes, the config stays.
  const Done codes = Run(With(Back("codes"), {"--cast", "float8_e4m3fn"}));
  EXPECT_EQ(codes.code, tools::kExitDone) << codes.err;
  EXPECT_THAT(codes.out, Not(HasSubstr("left out of config.json")));
}

}  // namespace
}  // namespace dcp
