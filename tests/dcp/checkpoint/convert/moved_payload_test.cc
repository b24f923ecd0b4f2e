// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/moved_payload.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/checkpoint/convert/convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/convert_fixtures.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::LoadBytes;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SaveAll;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

SampleTensor TensorOf(absl::string_view name, std::vector<float> values) {
  SampleTensor tensor(std::string(name), DType::kFloat32,
                      {static_cast<int64_t>(values.size())});
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

TEST(CastLosses, CastsToBFloat16) {
  SimStorage fs;
  SampleTensor tensor("w", DType::kFloat32, {3});
  const float values[3] = {1.0f, -2.5f, 3.14159265f};
  std::memcpy(tensor.bytes.data(), values, sizeof(values));
  SaveAll(fs, "/a", {tensor});
  ConvertOptions options;
  options.selection.casts = {"bf16"};
  ASSERT_OK(ConvertCheckpoint(fs, "/a", "/b", std::move(options)));
  const std::string bytes = LoadBytes(fs, "/b", "w", DType::kBFloat16, Dims{3});
  ASSERT_EQ(bytes.size(), 6u);
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  EXPECT_EQ(LoadLittleEndian<uint16_t>(data), 0x3f80);
  EXPECT_EQ(LoadLittleEndian<uint16_t>(data + 2), 0xc020);
  EXPECT_EQ(LoadLittleEndian<uint16_t>(data + 4), 0x4049);
}

// PyTorch has done this since 2.15.
TEST(CastLosses, SaysWhichCastsAreBeyondTheRange) {
  SimStorage fs;
  const float infinity = std::numeric_limits<float>::infinity();
  SaveAll(fs, "/a",
          {TensorOf("small", {1, -448}), TensorOf("w", {465, 1, -infinity})});
  ConvertOptions options;
  options.selection.casts = {"float8_e4m3fn"};
  const auto plan = ConvertCheckpoint(fs, "/a", "/b", std::move(options));
  ASSERT_OK(plan);
  EXPECT_EQ(LoadBytes(fs, "/b", "w", DType::kFloat8E4M3FN, Dims{3}),
            "\x7e\x38\xfe");
  ASSERT_EQ(plan->cast_losses.size(), 1u);
  EXPECT_EQ(plan->cast_losses[0].name, "w");
  EXPECT_EQ(plan->cast_losses[0].dtype, DType::kFloat8E4M3FN);
  EXPECT_EQ(plan->cast_losses[0].num_beyond, 2u);
}

TEST(CastLosses, RefusesAStrictCastThatIsBeyondTheRange) {
  SimStorage fs;
  SaveAll(fs, "/a", {TensorOf("small", {1}), TensorOf("w", {1e30f})});
  for (const std::string dst : {"/b", "/b.pt", "/b.safetensors"}) {
    ConvertOptions options;
    options.selection.casts = {"fp16"};
    options.strict_cast = true;
    const auto refused = ConvertCheckpoint(fs, "/a", dst, std::move(options));
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("w (1 beyond float16)")));
    EXPECT_THAT(fs.Stat(dst), StatusIs(absl::StatusCode::kNotFound));
  }
  ConvertOptions fits;
  fits.selection.casts = {"small=fp16"};
  fits.strict_cast = true;
  EXPECT_OK(ConvertCheckpoint(fs, "/a", "/b", std::move(fits)));
}

}  // namespace
}  // namespace dcp
