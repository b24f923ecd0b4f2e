// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/lens/quantization.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr DType kF8 = DType::kFloat8E4M3FN;
constexpr DType kF32 = DType::kFloat32;
constexpr DType kBF16 = DType::kBFloat16;
constexpr DType kU8 = DType::kUInt8;
constexpr DType kI8 = DType::kInt8;
constexpr DType kI32 = DType::kInt32;

struct Tensor {
  std::string name;
  DType dtype;
  size_t num_dims = 2;
};

class QuantizationTest : public ::testing::Test {
 protected:
  // "NAME: SCHEME" for the tensors that are parts of quantized ones.
  std::vector<std::string> Mark(const std::vector<Tensor>& tensors,
                                const std::string& config = "") {
    if (!config.empty()) {
      EXPECT_OK(WriteFile(*fs_, JoinPath(dir_.path(), "config.new"), config));
      EXPECT_OK(fs_->Rename(JoinPath(dir_.path(), "config.new"),
                            JoinPath(dir_.path(), "config.json")));
    }
    parts_.entries.clear();
    parts_.properties.clear();
    for (const Tensor& tensor : tensors) {
      CheckpointEntry& entry = parts_.entries.emplace_back();
      entry.fqn = tensor.name;
      TensorEntry value;
      value.dtype = tensor.dtype;
      value.shape.assign(tensor.num_dims, 2);
      entry.value = value;
    }
    EXPECT_OK(MarkQuantized(*fs_, dir_.path(), parts_));
    std::vector<std::string> marked;
    for (const CheckpointEntry& entry : parts_.entries) {
      const Quantization* const found = entry.tensor()->quantization;
      if (found == nullptr) continue;
      marked.push_back(absl::StrCat(entry.fqn, ": ", found->scheme));
    }
    return marked;
  }

  TempDir dir_;
  std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem();
  CheckpointParts parts_;
};

TEST_F(QuantizationTest, NamesTellTheScheme) {
  const struct {
    std::vector<Tensor> tensors;
    std::string scheme;
  } cases[] = {
      {{{"m.weight", kF8}, {"m.weight_scale_inv", kF32}},
       "float8 with scales of blocks"},
      {{{"e.up_proj", kF8, 3}, {"e.up_proj_scale_inv", kF32, 3}},
       "float8 with scales of blocks"},
      {{{"w_blocks", kU8, 4}, {"w_scales", kU8, 3}}, "MXFP4"},
      {{{"m.weight", kF8},
        {"m.weight_scale", kF32},
        {"m.input_scale", kF32, 0}},
       "codes with weight_scale"},
      {{{"m.weight_packed", kI32},
        {"m.weight_scale", kBF16},
        {"m.weight_shape", kI32, 1},
        {"m.weight_zero_point", kI32}},
       "packed codes of compressed-tensors"},
      {{{"m.weight", kI8}, {"m.SCB", kF32, 1}, {"m.weight_format", kU8, 0}},
       "8 bits of bitsandbytes"},
      // Such codes may be stored as any type.
      {{{"m.weight", kBF16},
        {"m.weight.absmax", kU8, 1},
        {"m.weight.nested_absmax", kF32, 1},
        {"m.weight.quant_map", kF32, 1},
        {"m.weight.quant_state.bitsandbytes__nf4", kU8, 1}},
       "4 bits of bitsandbytes"},
      {{{"o.w.state1", kU8}, {"o.w.absmax1", kF32, 1}, {"o.w.qmap1", kF32, 1}},
       "an 8-bit optimizer of bitsandbytes"},
      {{{"m.qweight", kI32},
        {"m.qzeros", kI32},
        {"m.scales", kBF16},
        {"m.g_idx", kI32, 1}},
       "GPTQ or AWQ"},
      {{{"m.qweight", kI32}, {"m.scales", kBF16}}, "GPTQ or AWQ"},
      {{{"m.qweight", kI32}}, "GPTQ or AWQ"},
      {{{"m.W_q", kU8}, {"m.scale", kBF16}, {"m.zero", kBF16}}, "HQQ"},
      {{{"m.weight._data", kI8}, {"m.weight._scale", kBF16}}, "quanto"},
  };
  for (const auto& [tensors, scheme] : cases) {
    std::vector<std::string> all;
    for (const Tensor& tensor : tensors) {
      all.push_back(absl::StrCat(tensor.name, ": ", scheme));
    }
    std::vector<Tensor> more = tensors;
    more.insert(more.end(), {{"m.bias", kBF16, 1},
                             {"n.weight", kBF16},
                             {"mm.weight", kF32},
                             {"e.up_proj_bias", kBF16}});
    EXPECT_EQ(Mark(more), all);
  }
}

TEST_F(QuantizationTest, NumbersWithSuchNamesAreNumbers) {
  EXPECT_THAT(Mark({{"m.weight", kF32}, {"m.weight_scale", kF32}}), IsEmpty());
  EXPECT_THAT(Mark({{"m.num_blocks", kF32}, {"m.num_scales", kF32}}),
              IsEmpty());
  EXPECT_THAT(Mark({{"m.scales", kF32}, {"weight_scale_inv", kF32}}),
              IsEmpty());
  // The result of --cast float8_e4m3fn.
  EXPECT_THAT(Mark({{"m.weight", kF8}, {"m.bias", kF8}}), IsEmpty());
  EXPECT_THAT(parts_.properties, IsEmpty());
}

TEST_F(QuantizationTest, ConfigsTellMoreThanNames) {
  const std::vector<Tensor> tensors = {
      {"m.codes", kI8},      {"m.codebooks", kBF16, 3},
      {"m.bias", kBF16, 1},  {"n.weight", kBF16},
      {"rng_state", kU8, 1}, {"n.position_ids", DType::kInt64}};
  const auto is_aqlm = ElementsAre(
      "m.codes: aqlm, as quantization_config in config.json says",
      "m.codebooks: aqlm, as quantization_config in config.json says");
  EXPECT_THAT(Mark(tensors), IsEmpty());
  EXPECT_THAT(
      Mark(tensors, R"({"quantization_config": {"quant_method": "aqlm"}})"),
      is_aqlm);
  EXPECT_THAT(parts_.properties,
              ElementsAre(Pair("quantized", AllOf(HasSubstr("aqlm"),
                                                  HasSubstr("2 tensors")))));
  EXPECT_THAT(Mark(tensors, R"({"text_config": {"quantization_config":
                                {"quant_method": "aqlm"}}})"),
              is_aqlm);
  EXPECT_THAT(Mark(tensors, R"({"quantization_config": null})"), IsEmpty());
  EXPECT_THAT(Mark(tensors, "no JSON"), IsEmpty());
}

// As torchao 0.18 flattens tensors in subclasses.
TEST_F(QuantizationTest, ReadsTorchaosHeader) {
  parts_.metadata = {{"tensor_names", R"(["m.weight", "m.bias"])"},
                     {"m.weight", R"({"_type": "Float8Tensor", "_data": {},
                       "_tensor_data_names": ["qdata", "scale"]})"},
                     {"m.bias", R"({"_type": "Tensor"})"}};
  EXPECT_THAT(Mark({{"m._weight_qdata", kF8},
                    {"m._weight_scale", kF32},
                    {"m.bias", kF32, 1},
                    {"n.weight", kF32}}),
              ElementsAre("m._weight_qdata: torchao's Float8Tensor",
                          "m._weight_scale: torchao's Float8Tensor"));
}

TEST_F(QuantizationTest, RefusesToComputeWithAPart) {
  Mark({{"m.weight", kF8}, {"m.weight_scale_inv", kF32}, {"n.weight", kF32}});
  const TensorEntry& codes = *parts_.entries[0].tensor();
  EXPECT_THAT(CheckNotQuantized("m.weight", codes, "averaged"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("so it cannot be averaged; the option decode "
                                 "fp8-128 makes numbers of it first")));
  EXPECT_EQ(WhyNotCast(codes, kF8), "");
  EXPECT_THAT(WhyNotCast(codes, kBF16),
              HasSubstr("so it cannot be converted to bfloat16"));
  EXPECT_THAT(WhyNotCast(codes, kI8),
              HasSubstr("which cannot be converted to int8"));
  const TensorEntry& numbers = *parts_.entries[2].tensor();
  EXPECT_OK(CheckNotQuantized("n.weight", numbers, "averaged"));
  EXPECT_EQ(WhyNotCast(numbers, kBF16), "");
}

}  // namespace
}  // namespace dcp
