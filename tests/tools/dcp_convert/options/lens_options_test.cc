// SPDX-License-Identifier: Apache-2.0
// `dcp-convert --decode`, --adapter and --average against the results of
// transformers, Megatron-Bridge, peft and torch for the same files: bit for
// bit, in every format and on any mesh.
#include <string>
#include <utility>

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
using ::dcp::testing::With;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

class LensTest : public CommandFixture {
 protected:
  // The result equals the judge's: from one file, from ranks with shards that
  // cut blocks to other ranks, and from a .pt file; and diff finds no
  // difference.
  void ExpectJudged(const std::string& source, const std::string& judge,
                    const Arguments& options) {
    Expect(tools::kExitDone,
           With({"convert", source, In("there.safetensors")}, options));
    EXPECT_THAT(LinesOf(TensorsIn(In("there.safetensors"))),
                ElementsAreArray(GoldenLines("lenses", judge)));
    Expect(tools::kExitDone,
           {"convert", source, In("ranks"), "--to", "dcp", "--mesh", "dp=3"});
    Expect(tools::kExitDone,
           With({"reshard", In("ranks"), In("others"), "--mesh", "dp=5"},
                options));
    Expect(tools::kExitDone,
           {"diff", In("there.safetensors"), In("others"), "--tensors-only"});
    Expect(tools::kExitDone, {"convert", source, In("source.pt")});
    Expect(tools::kExitDone, With({"diff", In("source.pt"),
                                   In("there.safetensors"), "--tensors-only"},
                                  options));
    Expect(tools::kExitDone, {"verify", In("others")});
  }

  static std::string Golden(const std::string& file) {
    return GoldenPath("lenses", file);
  }
};

TEST_F(LensTest, DecodesFloat8AsTransformersDoes) {
  ExpectJudged(Golden("fp8.safetensors"), "fp8_decoded",
               {"--decode", "fp8-128"});
}

TEST_F(LensTest, CutsBlocksAtTheEdgesAsMegatronBridgeDoes) {
  ExpectJudged(Golden("fp8_edge.safetensors"), "fp8_edge_decoded",
               {"--decode", "fp8-128"});
}

// The result is transposed, and turned back by a rule.
TEST_F(LensTest, DecodesMxfp4AsTransformersDoes) {
  ASSERT_OK(WriteFile(*fs_, In("mxfp4.yaml"), R"(tessera-mapping: 1
name: blocks
sides:
  stored:
    blocks: {kind: mxfp4, weight: w, codes: w_blocks, scales: w_scales}
  same:
  turned:
rules:
- stored: {w: e c r}
  same: {w: e c r}
- stored: {w: e c r}
  turned: {w: e r c}
)"));
  const std::string source = Golden("mxfp4.safetensors");
  const auto map = [&](Arguments arguments, const std::string& from,
                       const std::string& to) {
    Expect(tools::kExitDone,
           With(std::move(arguments), {"--map-file", In("mxfp4.yaml"),
                                       "--from-side", from, "--to-side", to}));
  };
  EXPECT_THAT(Run({"convert", source, In("there.safetensors"), "--map-file",
                   In("mxfp4.yaml"), "--from-side", "stored", "--to-side",
                   "turned", "--plan"})
                  .out,
              HasSubstr("arithmetic   1.00"));
  map({"convert", source, In("there.safetensors")}, "stored", "same");
  EXPECT_THAT(LinesOf(TensorsIn(In("there.safetensors"))),
              ElementsAreArray(GoldenLines("lenses", "mxfp4_decoded")));
  map({"convert", source, In("ranks"), "--to", "dcp", "--mesh", "dp=4",
       "--place", "*=S(1)"},
      "stored", "same");
  Expect(tools::kExitDone,
         {"diff", In("there.safetensors"), In("ranks"), "--tensors-only"});
  map({"convert", source, In("turned"), "--to", "dcp", "--mesh", "dp=3",
       "--place", "*=S(2)"},
      "stored", "turned");
  map({"convert", In("turned"), In("back.safetensors")}, "turned", "same");
  Expect(tools::kExitDone, {"diff", In("there.safetensors"),
                            In("back.safetensors"), "--tensors-only"});
}

TEST_F(LensTest, MergesAnAdapterAsPeftDoes) {
  ExpectJudged(Golden("lora_base.safetensors"), "lora_merged",
               {"--adapter", Golden("lora")});
}

TEST_F(LensTest, TakesTheMeanAsTorchDoes) {
  ExpectJudged(Golden("mean_a.safetensors"), "mean_merged",
               {"--average", Golden("mean_b.safetensors"), "--average",
                Golden("mean_c.safetensors")});
}

// AveragedModel had float16 and bfloat16 as float32, and its result was
// rounded. float64 holds values that float32 does not.
TEST_F(LensTest, TakesTheMeanOfEachTypeAsTorchDoes) {
  const std::string a = Golden("mean_types_a.safetensors");
  const Arguments others = {"--average", Golden("mean_types_b.safetensors"),
                            "--average", Golden("mean_types_c.safetensors")};
  Expect(tools::kExitDone,
         With({"convert", a, In("mean.safetensors")}, others));
  Expect(tools::kExitDone, {"diff", In("mean.safetensors"),
                            Golden("mean_types_merged.safetensors")});
  Expect(tools::kExitDone,
         {"convert", a, In("ranks"), "--to", "dcp", "--mesh", "dp=3"});
  Expect(tools::kExitDone, With({"reshard", In("ranks"), In("ranks2"), "--mesh",
                                 "dp=2", "--place", "*=S(1)"},
                                others));
  Expect(tools::kExitDone,
         {"diff", In("ranks2"), Golden("mean_types_merged.safetensors")});
}

TEST_F(LensTest, NamesTensorsWithoutAMean) {
  const std::string a = Golden("mean_a.safetensors");
  Expect(tools::kExitDone,
         {"convert", a, In("codes.safetensors"), "--cast", "float8_e5m2"});
  ExpectRefused({"convert", In("codes.safetensors"), In("x.safetensors"),
                 "--average", In("codes.safetensors")},
                "w (float8_e5m2 [16, 8]) has no mean");
}

TEST_F(LensTest, RoundsOnceToTheWrittenType) {
  const std::string source = Golden("fp8_edge.safetensors");
  Expect(tools::kExitDone, {"convert", source, In("wide.safetensors"),
                            "--decode", "fp8-128", "--cast", "f32"});
  Expect(tools::kExitDone, {"convert", In("wide.safetensors"),
                            In("narrow.safetensors"), "--cast", "bf16"});
  EXPECT_THAT(LinesOf(TensorsIn(In("narrow.safetensors"))),
              ElementsAreArray(GoldenLines("lenses", "fp8_edge_decoded")));
  ExpectRefused(
      {"convert", Golden("lora_base.safetensors"), In("x.safetensors"),
       "--adapter", Golden("lora"), "--cast", "bf16"},
      "cast them in a second run");
}

TEST_F(LensTest, RefusesTensorsThatDoNotMatch) {
  const std::string fp8 = Golden("fp8.safetensors");
  ExpectRefused({"convert", fp8, In("a.safetensors"), "--average",
                 Golden("mean_b.safetensors")},
                "does not have the tensor a.weight");
  ExpectRefused(
      {"convert", fp8, In("a.safetensors"), "--adapter", Golden("lora")},
      "which the model does not have");
  Expect(tools::kExitDone,
         {"convert", fp8, In("codes.safetensors"), "--exclude", "*_scale_inv"});
  ExpectRefused({"convert", In("codes.safetensors"), In("a.safetensors"),
                 "--decode", "fp8-128"},
                "a.weight is float8, but its scales a.weight_scale_inv are "
                "missing");
  // The scales for b used for a.
  Expect(tools::kExitDone,
         {"convert", fp8, In("mixed.safetensors"), "--exclude",
          "a.weight_scale_inv", "--exclude", "b.weight", "--rename",
          "s/^b.weight_scale_inv/a.weight_scale_inv/"});
  ExpectRefused({"convert", In("mixed.safetensors"), In("a.safetensors"),
                 "--decode", "fp8-128"},
                "blocks of 128 x 128 need floating-point scales of shape "
                "[2, 3]");
}

// Otherwise transformers would treat the decoded values as codes.
TEST_F(LensTest, DecodedModelsHaveNoQuantizationConfig) {
  ASSERT_OK(fs_->MakeDirectory(In("model")));
  ASSERT_OK_AND_ASSIGN(
      const std::string weights,
      ReadFile(*fs_, Golden("fp8.safetensors"), 1 << 20, true));
  ASSERT_OK(WriteFile(*fs_, In("model/model.safetensors"), weights));
  ASSERT_OK(WriteFile(
      *fs_, In("model/config.json"),
      R"({"dtype": "float16", "quantization_config": {"a": [1]}, "z": 1})"));
  Expect(tools::kExitDone,
         {"convert", In("model"), In("out"), "--to", "safetensors", "--decode",
          "fp8-128", "--cast", "f32"});
  ASSERT_OK_AND_ASSIGN(const std::string config,
                       ReadFile(*fs_, In("out/config.json"), 1 << 20, true));
  EXPECT_EQ(config, R"({"dtype": "float32",  "z": 1})");
}

TEST_F(LensTest, RefusesContradictoryOptions) {
  const std::string a = Golden("mean_a.safetensors");
  const std::string b = Golden("mean_b.safetensors");
  ExpectRefused({"convert", a, In("x"), "--decode", "fp4"}, "fp8-128 or mxfp4");
  ExpectRefused({"convert", a, In("x"), "--average", b, "--decode", "mxfp4"},
                "--average excludes");
  ExpectRefused({"convert", a, In("x"), "--decode", "mxfp4", "--map",
                 "llama-hf-to-torchtitan"},
                "--decode belongs to");
}

}  // namespace
}  // namespace dcp
