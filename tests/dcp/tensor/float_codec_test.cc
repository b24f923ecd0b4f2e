// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/float_codec.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/tensor/element.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace dcp {
namespace {

constexpr std::array kTypes = {DType::kFloat64,        DType::kFloat32,
                               DType::kFloat16,        DType::kBFloat16,
                               DType::kFloat8E4M3FN,   DType::kFloat8E5M2,
                               DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2FNUZ};

template <typename T>
void Append(T value, std::vector<uint8_t>& bytes) {
  const size_t end = bytes.size();
  bytes.resize(end + sizeof(T));
  std::memcpy(bytes.data() + end, &value, sizeof(T));
}

// The inputs in make_float_table.py.
std::vector<uint8_t> Inputs(DType dtype) {
  constexpr std::array kLower = {0x0000u, 0x0001u, 0x0fffu, 0x1000u,
                                 0x1001u, 0x2fffu, 0x3000u, 0x3001u,
                                 0x7fffu, 0x8000u, 0x8001u, 0xffffu};
  constexpr std::array kLower64 = {0x0fffu, 0x1000u, 0x7fffu, 0x8000u};
  const uint32_t num_codes = ElementSize(dtype) == 1 ? 256 : 65536;
  std::vector<uint8_t> bytes;
  for (uint32_t code = 0; code < num_codes; ++code) {
    if (ElementSize(dtype) == 1) Append(static_cast<uint8_t>(code), bytes);
    if (ElementSize(dtype) == 2) Append(static_cast<uint16_t>(code), bytes);
    if (dtype == DType::kFloat32) {
      for (uint32_t lower : kLower) Append(code << 16 | lower, bytes);
    }
    if (dtype == DType::kFloat64) {
      for (uint32_t lower : kLower64) {
        const double value = std::bit_cast<float>(code << 16 | lower);
        const uint64_t middle = std::bit_cast<uint64_t>(value);
        for (uint64_t bits : {middle - 1, middle, middle + 1}) {
          Append(bits, bytes);
        }
      }
    }
  }
  return bytes;
}

TEST(FloatCodec, ConvertsEveryValueAsTorchDoes) {
  std::ifstream file("tests/golden/float_table.json");
  ASSERT_TRUE(file.is_open());
  const nlohmann::json table = nlohmann::json::parse(file)["crc32"];
  for (DType from : kTypes) {
    const std::vector<uint8_t> src = Inputs(from);
    const uint64_t num = src.size() / ElementSize(from);
    for (DType to : kTypes) {
      if (from == to) continue;
      std::vector<uint8_t> dst(num * ElementSize(to));
      TransformElements({.from = from, .to = to}, src.data(), dst.data(), num);
      const std::string row(TorchName(from)), column(TorchName(to));
      EXPECT_EQ(ExtendCrc32(0, ByteSpan(dst)), table[row][column])
          << row << " to " << column;
    }
  }
}

// The elements of type `dtype` as float32.
std::vector<float> Decoded(DType dtype, const std::vector<uint8_t>& bytes) {
  std::vector<float> floats(bytes.size() / ElementSize(dtype));
  DecodeFloats(dtype, bytes.data(), floats);
  return floats;
}

TEST(FloatCodec, CountsValuesBeyondTheRange) {
  for (DType from : kTypes) {
    const std::vector<uint8_t> src = Inputs(from);
    const std::vector<float> before = Decoded(from, src);
    for (DType to : kTypes) {
      if (from == to) continue;
      std::vector<uint8_t> dst(before.size() * ElementSize(to));
      uint64_t num_beyond = 0;
      TransformElements({.from = from, .to = to}, src.data(), dst.data(),
                        before.size(), &num_beyond);
      const std::vector<float> after = Decoded(to, dst);
      uint64_t expected = 0;
      for (size_t i = 0; i < before.size(); ++i) {
        double value = before[i];
        if (from == DType::kFloat64) {
          std::memcpy(&value, src.data() + i * sizeof(value), sizeof(value));
        }
        if (std::isnan(value)) continue;
        const bool became_infinite = std::isinf(after[i]) && !std::isinf(value);
        const bool became_nan = std::isnan(after[i]);
        const bool became_largest =
            to == DType::kFloat8E4M3FN && std::fabs(before[i]) > 464;
        expected += became_infinite || became_nan || became_largest ? 1 : 0;
      }
      // float64 itself holds all values, infinities too.
      EXPECT_EQ(num_beyond, to == DType::kFloat64 ? 0 : expected)
          << TorchName(from) << " to " << TorchName(to);
    }
  }
}

TEST(FloatCodec, DecodesItsOwnCodes) {
  for (DType dtype : kTypes) {
    if (ElementSize(dtype) > 2) continue;
    const std::vector<uint8_t> codes = Inputs(dtype);
    std::vector<float> floats(codes.size() / ElementSize(dtype));
    DecodeFloats(dtype, codes.data(), floats);
    std::vector<uint8_t> again(codes.size());
    EncodeFloats(dtype, floats, again.data());
    std::vector<float> decoded(floats.size());
    DecodeFloats(dtype, again.data(), decoded);
    for (size_t i = 0; i < floats.size(); ++i) {
      const bool both_nan = floats[i] != floats[i] && decoded[i] != decoded[i];
      ASSERT_TRUE(both_nan || std::bit_cast<uint32_t>(floats[i]) ==
                                  std::bit_cast<uint32_t>(decoded[i]))
          << TorchName(dtype) << " code " << i;
    }
  }
}

TEST(FloatCodec, HasACodecForEachType) {
  int num = 0;
  for (int i = 0; i < kNumDTypes; ++i) {
    if (HasFloatCodec(static_cast<DType>(i))) ++num;
  }
  EXPECT_EQ(num, static_cast<int>(kTypes.size()));
  for (DType dtype : kTypes) EXPECT_TRUE(HasFloatCodec(dtype));
}

}  // namespace
}  // namespace dcp
