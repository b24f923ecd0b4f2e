// SPDX-License-Identifier: Apache-2.0
// Codes and scales: dcp-convert copies and cuts them, and computes with them
// only if they are decoded.
#include <string>

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

constexpr absl::string_view kConfig = R"({"model_type": "deepseek_v3",
  "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8",
  "weight_block_size": [128, 128]}})";

class QuantizedTest : public CommandFixture {
 protected:
  // Makes a folder with a.weight and b.weight in float8, with their scales.
  void SetUp() override {
    ASSERT_OK(fs_->MakeDirectory(In("fp8")));
    Expect(tools::kExitDone,
           {"convert", GoldenPath("lenses", "fp8.safetensors"),
            In("fp8/model.safetensors")});
    Configure(std::string(kConfig));
  }

  void Configure(const std::string& config) {
    ASSERT_OK(WriteFile(*fs_, In("fp8/config.new"), config));
    ASSERT_OK(fs_->Rename(In("fp8/config.new"), In("fp8/config.json")));
  }
};

TEST_F(QuantizedTest, CastsNeitherCodesNorScales) {
  for (const std::string& verb : {"convert", "consolidate"}) {
    ExpectRefused(
        {verb, In("fp8"), In("out"), "--to", "safetensors", "--cast", "bf16"},
        "cannot cast a.weight_scale_inv, which is stored as float32 "
        "and is a part of a quantized tensor (float8 with scales of "
        "blocks), so it cannot be converted to bfloat16; --decode "
        "fp8-128 makes numbers of it first");
  }
  ExpectRefused({"convert", In("fp8"), In("out"), "--to", "safetensors",
                 "--cast", "*.weight=bf16"},
                "cannot cast a.weight, which is stored as float8_e4m3fn");
  ExpectRefused(
      {"reshard", In("fp8"), In("out"), "--mesh", "dp=2", "--cast", "bf16"},
      "cannot cast a.weight");
  ExpectRefused({"convert", In("fp8"), In("out.pt"), "--cast", "bf16"},
                "cannot cast a.weight");
  EXPECT_NE(Run({"diff", In("fp8"), In("fp8"), "--cast", "bf16"}).code,
            tools::kExitDone);
  Expect(tools::kExitDone,
         {"convert", In("fp8"), In("out"), "--to", "dcp", "--mesh", "dp=3",
          "--cast", "*=float8_e4m3fn", "--exclude", "*_scale_inv"});
  Expect(tools::kExitDone,
         {"convert", In("fp8"), In("decoded"), "--to", "safetensors",
          "--decode", "fp8-128", "--cast", "bf16"});
}

// Then only the config tells that these are codes.
TEST_F(QuantizedTest, ConfigIdentifiesCodesWithoutScales) {
  Expect(tools::kExitDone, {"convert", In("fp8"), In("codes"), "--to",
                            "safetensors", "--exclude", "*_scale_inv"});
  ExpectRefused({"convert", In("codes"), In("out"), "--to", "safetensors",
                 "--cast", "bf16"},
                "(fp8, as quantization_config in config.json says)");
  Expect(tools::kExitDone, {"convert", In("codes"), In("plain"), "--to",
                            "safetensors", "--no-copy-config"});
  Expect(tools::kExitDone, {"convert", In("plain"), In("out"), "--to",
                            "safetensors", "--cast", "bf16"});
}

TEST_F(QuantizedTest, RefusesOtherComputations) {
  ExpectRefused(
      {"convert", In("fp8"), In("out"), "--to", "safetensors", "--average",
       In("fp8")},
      "a.weight_scale_inv is a part of a quantized tensor (float8 with "
      "scales of blocks), so it cannot be averaged; --decode fp8-128");
  ExpectRefused({"convert", In("fp8"), In("out"), "--to", "safetensors",
                 "--encode", "fp8-128"},
                "cannot be next to encoded ones");
  ASSERT_OK(WriteFile(*fs_, In("rules.yaml"), R"(tessera-mapping: 1
name: turned
sides: {a: , b: }
rules:
- a: {"a.weight": r c}
  b: {"a.weight": c r}
)"));
  const Arguments turn = {
      "--map-file", In("rules.yaml"), "--from-side", "a", "--to-side",
      "b",          "--unmatched",    "keep"};
  ExpectRefused(
      With({"convert", In("fp8"), In("out"), "--to", "safetensors"}, turn),
      "so it cannot be moved by a rule");
}

TEST_F(QuantizedTest, RefusesAdaptersOnCodes) {
  Expect(tools::kExitDone, {"convert", In("fp8"), In("model.safetensors"),
                            "--rename", "s/^a/model.layers.0.mlp.down_proj/"});
  ExpectRefused({"convert", In("model.safetensors"), In("out"), "--to",
                 "safetensors", "--adapter", GoldenPath("lenses", "lora")},
                "so it cannot be changed by an adapter; --decode fp8-128");
}

TEST_F(QuantizedTest, RefusesBlocksOfAnotherSize) {
  Configure(R"({"quantization_config": {"quant_method": "fp8",
                "weight_block_size": [64, 128]}})");
  ExpectRefused({"convert", In("fp8"), In("out"), "--to", "safetensors",
                 "--decode", "fp8-128"},
                "config.json says that the blocks are 64 x 128");
  ExpectRefused({"convert", In("fp8"), In("out"), "--to", "safetensors",
                 "--cast", "bf16"},
                "(float8 with scales of blocks of 64 x 128), so it cannot be "
                "converted to bfloat16; this scheme cannot be decoded here");
}

TEST_F(QuantizedTest, InspectNamesTheScheme) {
  EXPECT_THAT(Run({"inspect", In("fp8")}).out,
              HasSubstr("quantized  float8 with scales of blocks, 4 tensors, "
                        "decoded as fp8-128\n"));
  EXPECT_THAT(
      Run({"inspect", In("fp8"), "--json"}).out,
      AllOf(HasSubstr("\"quantized\":\"float8 "), HasSubstr("4 tensors")));
}

}  // namespace
}  // namespace dcp
