// SPDX-License-Identifier: Apache-2.0
// `dcp-convert --encode`: float8 in blocks against transformers' result for the
// same tensors, bit for bit, in every format and on any mesh; and rules that
// scale and add.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/mapping/golden_models.h"
#include "tests/testing/status_matchers.h"
#include "tests/tools/dcp_convert/command_fixture.h"

namespace dcp {
namespace {

using ::dcp::testing::Arguments;
using ::dcp::testing::ArrayTensor;
using ::dcp::testing::CommandFixture;
using ::dcp::testing::GoldenLines;
using ::dcp::testing::GoldenPath;
using ::dcp::testing::LinesOf;
using ::dcp::testing::TensorsIn;
using ::dcp::testing::With;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class EncodeTest : public CommandFixture {
 protected:
  // The tensors behind transformers' golden codes.
  std::string Source() {
    std::string path = In("source.safetensors");
    if (!fs_->Stat(path).ok()) {
      Expect(tools::kExitDone,
             {"convert", GoldenPath("lenses", "fp8.safetensors"), path,
              "--decode", "fp8-128"});
    }
    return path;
  }

  void ExpectSame(const std::string& a, const std::string& b) {
    Expect(tools::kExitDone, {"diff", In(a), In(b), "--tensors-only"});
  }

  std::vector<std::string> NamesIn(const std::string& path) const {
    std::vector<std::string> names;
    for (const ArrayTensor& tensor : TensorsIn(In(path))) {
      names.push_back(tensor.tensor.name);
    }
    return names;
  }

  // A safetensors file with one float32 tensor [rows, columns].
  void WriteMatrix(const std::string& path, int rows, int columns,
                   const std::vector<float>& values) {
    const std::string header = absl::StrCat(
        R"({"x.weight":{"dtype":"F32","shape":[)", rows, ",", columns,
        R"(],"data_offsets":[0,)", values.size() * sizeof(float), "]}}");
    std::string text(8, '\0');
    text[0] = static_cast<char>(header.size());
    text += header;
    text.append(reinterpret_cast<const char*>(values.data()),
                values.size() * sizeof(float));
    ASSERT_OK(WriteFile(*fs_, In(path), text));
  }
};

TEST_F(EncodeTest, EncodesAsTransformersDoes) {
  const Arguments encode = {"--encode", "fp8-128"};
  Expect(tools::kExitDone,
         With({"convert", Source(), In("codes.safetensors")}, encode));
  EXPECT_THAT(LinesOf(TensorsIn(In("codes.safetensors"))),
              ElementsAreArray(GoldenLines("lenses", "fp8_encoded")));
  Expect(tools::kExitDone,
         {"convert", Source(), In("ranks"), "--to", "dcp", "--mesh", "dp=3"});
  Expect(tools::kExitDone,
         With({"reshard", In("ranks"), In("rows"), "--mesh", "dp=5"}, encode));
  ExpectSame("codes.safetensors", "rows");
  Expect(tools::kExitDone, With({"reshard", In("ranks"), In("columns"),
                                 "--mesh", "dp=2", "--place", "*=S(1)"},
                                encode));
  ExpectSame("codes.safetensors", "columns");
  Expect(tools::kExitDone, {"verify", In("columns")});
  Expect(tools::kExitDone,
         With({"consolidate", In("ranks"), In("codes.pt")}, encode));
  ExpectSame("codes.safetensors", "codes.pt");
  // Codes may be decoded and encoded in one run.
  Expect(tools::kExitDone,
         With({"convert", GoldenPath("lenses", "fp8.safetensors"),
               In("again.safetensors"), "--decode", "fp8-128"},
              encode));
  ExpectSame("codes.safetensors", "again.safetensors");
}

// Blocks at the edges are cut, rows are longer than a part that is held at
// once, and the result matches the arithmetic.
TEST_F(EncodeTest, EncodesWideMatricesAndEdges) {
  constexpr int kRows = 130;
  constexpr int kColumns = 17000;  // 8 MiB hold 128 rows of 16384 float32
  std::vector<float> values(size_t{kRows} * kColumns);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 1013) - 506;
  }
  values.back() = 4096;  // in a 2 x 104 block
  values[0] = 0x1p-20F;  // in a block with maximum 506
  WriteMatrix("x.safetensors", kRows, kColumns, values);
  Expect(tools::kExitDone, {"convert", In("x.safetensors"), In("codes"), "--to",
                            "dcp", "--mesh", "dp=3", "--encode", "fp8-128"});
  Expect(tools::kExitDone, {"convert", In("codes"), In("back.safetensors"),
                            "--decode", "fp8-128", "--cast", "f32"});
  const std::vector<ArrayTensor> back = TensorsIn(In("back.safetensors"));
  ASSERT_THAT(back, SizeIs(1));
  ASSERT_THAT(back[0].tensor.shape, ElementsAre(kRows, kColumns));
  std::vector<float> found(values.size());
  ASSERT_EQ(back[0].bytes.size(), found.size() * sizeof(float));
  std::memcpy(found.data(), back[0].bytes.data(), back[0].bytes.size());
  EXPECT_EQ(found.back(), 4096);
  EXPECT_EQ(found[0], 0);
  // The mantissa has three bits: half a unit in the last place is 1/16.
  for (size_t i = 1; i + 1 < values.size(); ++i) {
    const float most = std::max(std::abs(values[i]) / 16, 0.5F);
    // The block with 4096 has a coarser scale.
    if (i / kColumns >= 128 && i % kColumns >= 16896) continue;
    ASSERT_NEAR(found[i], values[i], most) << i;
  }
}

TEST_F(EncodeTest, ZerosHaveScaleOneAndTinyNumbersStayFinite) {
  WriteMatrix("zeros.safetensors", 2, 2, {0, 0, 0, 0});
  Expect(tools::kExitDone, {"convert", In("zeros.safetensors"),
                            In("codes.safetensors"), "--encode", "fp8-128"});
  const float one = 1;
  EXPECT_EQ(TensorsIn(In("codes.safetensors"))[1].bytes,
            std::string(reinterpret_cast<const char*>(&one), sizeof(one)));
  WriteMatrix("tiny.safetensors", 2, 2, {0, 1e-40F, -1e-40F, 0});
  Expect(tools::kExitDone,
         {"convert", In("tiny.safetensors"), In("tiny_codes.safetensors"),
          "--encode", "fp8-128"});
  const std::string codes = TensorsIn(In("tiny_codes.safetensors"))[0].bytes;
  EXPECT_EQ(codes[0], 0);
  EXPECT_NE(codes[1] & 0x7f, 0x7f);  // not NaN
}

TEST_F(EncodeTest, EncodesOnlyLinearLayers) {
  const std::string llama = GoldenPath("llama", "hf.safetensors");
  Expect(tools::kExitDone, {"convert", llama, In("a.safetensors"), "--encode",
                            "fp8-128", "--encode-exclude", "*.mlp.*"});
  const std::vector<std::string> names = NamesIn("a.safetensors");
  EXPECT_THAT(names, ::testing::Contains(
                         "model.layers.0.self_attn.q_proj.weight_scale_inv"));
  for (const std::string& name : names) {
    if (!absl::StrContains(name, "scale_inv")) continue;
    EXPECT_THAT(name, HasSubstr(".self_attn."));
  }
}

// The whole way: a family in float8, from another program's ranks, and back.
TEST_F(EncodeTest, FamilyRoundTripsThroughFloat8) {
  ASSERT_OK_AND_ASSIGN(
      const std::string text,
      ReadFile(*fs_, GoldenPath("qwen3_moe", "config.json"), 1 << 20, true));
  ASSERT_OK(WriteFile(*fs_, In("config.json"), text));
  const Arguments config = {"--config", In("config.json")};
  Expect(tools::kExitDone,
         With({"convert", GoldenPath("qwen3_moe", "hf.safetensors"), In("tt"),
               "--to", "dcp", "--mesh", "dp=2", "--map",
               "qwen3-moe-hf-to-torchtitan"},
              config));
  Expect(tools::kExitDone,
         With({"convert", In("tt"), In("hf"), "--to", "safetensors", "--map",
               "qwen3-moe-torchtitan-to-hf", "--encode", "fp8-128"},
              config));
  // The side follows from the names of codes and scales.
  Expect(tools::kExitDone, With({"convert", In("hf"), In("back"), "--to", "dcp",
                                 "--map", "auto", "--to-side", "torchtitan"},
                                config));
  ASSERT_OK_AND_ASSIGN(const std::string there,
                       ReadFile(*fs_, In("hf/config.json"), 1 << 20, true));
  EXPECT_THAT(there, HasSubstr("\"quant_method\": \"fp8\""));
  // Values that were float8 once do not change a second time.
  Expect(tools::kExitDone,
         With({"convert", In("back"), In("hf2"), "--to", "safetensors", "--map",
               "qwen3-moe-torchtitan-to-hf", "--encode", "fp8-128"},
              config));
  Expect(tools::kExitDone, {"diff", In("hf"), In("hf2"), "--tensors-only",
                            "--include", "*.weight"});
}

TEST_F(EncodeTest, ConfigSaysThatTheModelIsQuantized) {
  ASSERT_OK(fs_->MakeDirectory(In("model")));
  Expect(tools::kExitDone, {"convert", GoldenPath("llama", "hf.safetensors"),
                            In("model/model.safetensors")});
  ASSERT_OK(WriteFile(*fs_, In("model/config.json"), R"({"dtype": "x"})"));
  Expect(tools::kExitDone, {"convert", In("model"), In("out"), "--to",
                            "safetensors", "--encode", "fp8-128"});
  ASSERT_OK_AND_ASSIGN(const std::string config,
                       ReadFile(*fs_, In("out/config.json"), 1 << 20, true));
  EXPECT_EQ(config,
            "{\n  \"quantization_config\": {\"activation_scheme\": "
            "\"dynamic\", \"fmt\": \"e4m3\", \"modules_to_not_convert\": "
            "[\"lm_head\", \"model.embed_tokens\"], \"quant_method\": \"fp8\", "
            "\"weight_block_size\": [128, 128]},\"dtype\": \"x\"}");
}

TEST_F(EncodeTest, RefusesInvalidRequests) {
  const std::string source = Source();
  ExpectRefused({"convert", source, In("x"), "--encode", "fp4"}, "fp8-128");
  ExpectRefused({"convert", source, In("x"), "--encode-exclude", "*"},
                "which is not given");
  ExpectRefused(
      {"convert", source, In("x"), "--encode", "fp8-128", "--cast", "f16"},
      "cast first");
  ExpectRefused({"convert", source, In("x"), "--encode", "fp8-128",
                 "--encode-exclude", "*"},
                "nothing can be encoded");
  ExpectRefused({"convert", source, In("x"), "--to", "dcp", "--encode",
                 "fp8-128", "--share", "0/2"},
                "workers cannot");
  ExpectRefused({"convert", GoldenPath("llama", "hf.safetensors"), In("x"),
                 "--map", "llama-hf-to-torchtitan", "--encode", "fp8-128",
                 "--config", GoldenPath("llama", "config.json")},
                "does not say how torchtitan names float8 codes");
  std::vector<float> values(256 * 2, 1);
  values[300] = INFINITY;
  WriteMatrix("inf.safetensors", 256, 2, values);
  ExpectRefused({"convert", In("inf.safetensors"), In("x.safetensors"),
                 "--encode", "fp8-128"},
                "x.weight has an element that is not finite in row 150");
}

class RescaleTest : public EncodeTest {
 protected:
  static constexpr char kRules[] = R"(tessera-mapping: 1
name: norms
sides:
  plain:
  centered:
  local: {of: centered, spell: [[c., l.]]}
  half:
rules:
- plain: x.weight
  centered: c.weight
  half: h.weight
  add: {centered: -1}
  scale: {half: 0.5}
)";

  void SetUp() override {
    ASSERT_OK(WriteFile(*fs_, In("rules.yaml"), kRules));
  }

  void Map(const std::string& from_path, const std::string& to_path,
           const std::string& from, const std::string& to) {
    Expect(tools::kExitDone,
           {"convert", In(from_path), In(to_path), "--map-file",
            In("rules.yaml"), "--from-side", from, "--to-side", to});
  }

  std::vector<float> ValuesIn(const std::string& path) const {
    const std::vector<ArrayTensor> tensors = TensorsIn(In(path));
    EXPECT_THAT(tensors, SizeIs(1));
    std::vector<float> values(tensors[0].bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensors[0].bytes.data(),
                tensors[0].bytes.size());
    return values;
  }
};

TEST_F(RescaleTest, ScalesAndAddsInBothDirections) {
  WriteMatrix("x.safetensors", 1, 3, {1, 1.25F, -3});
  Map("x.safetensors", "c.safetensors", "plain", "centered");
  EXPECT_THAT(ValuesIn("c.safetensors"), ElementsAre(0, 0.25F, -4));
  Map("c.safetensors", "back.safetensors", "centered", "plain");
  ExpectSame("x.safetensors", "back.safetensors");
  Map("x.safetensors", "h.safetensors", "plain", "half");
  EXPECT_THAT(ValuesIn("h.safetensors"), ElementsAre(0.5F, 0.625F, -1.5F));
  // Through the pivot, both at once.
  Map("c.safetensors", "h2.safetensors", "centered", "half");
  ExpectSame("h.safetensors", "h2.safetensors");
  // Between sides with the same numbers nothing is computed.
  WriteMatrix("tiny.safetensors", 1, 2, {1e-30F, -0.0F});
  Expect(tools::kExitDone, {"convert", In("tiny.safetensors"),
                            In("c_tiny.safetensors"), "--rename", "s/x/c/"});
  Map("c_tiny.safetensors", "l_tiny.safetensors", "centered", "local");
  EXPECT_THAT(ValuesIn("l_tiny.safetensors"), ElementsAre(1e-30F, -0.0F));
  EXPECT_TRUE(std::signbit(ValuesIn("l_tiny.safetensors")[1]));
  EXPECT_THAT(NamesIn("l_tiny.safetensors"), ElementsAre("l.weight"));
}

TEST_F(RescaleTest, RoundsOnceAndComputesOnRanks) {
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i) / 7;
  }
  WriteMatrix("x.safetensors", 100, 10, values);
  Expect(tools::kExitDone, {"convert", In("x.safetensors"), In("ranks"), "--to",
                            "dcp", "--mesh", "dp=3"});
  Map("x.safetensors", "c.safetensors", "plain", "centered");
  Map("ranks", "c2.safetensors", "plain", "centered");
  ExpectSame("c.safetensors", "c2.safetensors");
  for (float& value : values) value -= 1;
  EXPECT_EQ(ValuesIn("c.safetensors"), values);
  Expect(tools::kExitDone, {"maps", "check", In("rules.yaml")});
  Expect(tools::kExitDone, {"maps", "test", In("rules.yaml")});
}

}  // namespace
}  // namespace dcp
