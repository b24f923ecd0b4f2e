// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/element.h"

#include <algorithm>
#include <bit>
#include <complex>
#include <cstddef>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace dcp {
namespace {

template <typename T>
std::vector<T> Transformed(const ElementTransform& transform,
                           const std::vector<T>& src) {
  std::vector<T> dst(src.size());
  TransformElements(transform, reinterpret_cast<const uint8_t*>(src.data()),
                    reinterpret_cast<uint8_t*>(dst.data()),
                    src.size() * sizeof(T) / ElementSize(transform.from));
  return dst;
}

TEST(Element, ACopyIsACopyForEveryType) {
  std::vector<uint8_t> bytes(160);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(i * 37);
  }
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    const ElementTransform copy = {.from = dtype, .to = dtype};
    EXPECT_TRUE(copy.is_copy());
    EXPECT_EQ(Transformed(copy, bytes), bytes);
  }
}

TEST(Element, OnlyFloatsConvert) {
  EXPECT_TRUE(CanConvert(DType::kInt32, DType::kInt32));
  EXPECT_TRUE(CanConvert(DType::kFloat64, DType::kFloat8E5M2FNUZ));
  EXPECT_FALSE(CanConvert(DType::kInt32, DType::kFloat32));
  EXPECT_FALSE(CanConvert(DType::kFloat32, DType::kComplex64));
  EXPECT_FALSE(CanConvert(DType::kFloat8E8M0FNU, DType::kFloat32));
  EXPECT_FALSE(CanConvert(DType::kFloat32, DType::kFloat4E2M1FNX2));
}

TEST(Element, BytesAreSwappedPerComponent) {
  const std::vector<uint8_t> bytes = {0, 1, 2,  3,  4,  5,  6,  7,
                                      8, 9, 10, 11, 12, 13, 14, 15};
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    std::vector<uint8_t> expected = bytes;
    const auto step = static_cast<std::ptrdiff_t>(ComponentSize(dtype));
    for (auto at = expected.begin(); at != expected.end(); at += step) {
      std::reverse(at, at + step);
    }
    EXPECT_EQ(
        Transformed({.swap_bytes = true, .from = dtype, .to = dtype}, bytes),
        expected)
        << TorchName(dtype);
  }
}

TEST(Element, ConjNegatesTheImaginaryComponent) {
  using Complex = std::complex<double>;
  const DType type = DType::kComplex128;
  EXPECT_EQ(Transformed<Complex>({.conj = true, .from = type, .to = type},
                                 {{1, 2}, {3, -4}}),
            (std::vector<Complex>{{1, -2}, {3, 4}}));
  EXPECT_EQ(Transformed<Complex>(
                {.conj = true, .neg = true, .from = type, .to = type},
                {{1, 2}, {3, -4}}),
            (std::vector<Complex>{{-1, 2}, {-3, -4}}));
}

TEST(Element, NegNegatesAsTheTypeDoes) {
  const auto neg = [](DType type) {
    return ElementTransform{.neg = true, .from = type, .to = type};
  };
  EXPECT_EQ(Transformed<float>(neg(DType::kFloat32), {1, -2}),
            (std::vector<float>{-1, 2}));
  EXPECT_EQ(Transformed<int16_t>(neg(DType::kInt16), {5, -32768}),
            (std::vector<int16_t>{-5, -32768}));
  EXPECT_EQ(Transformed<uint8_t>(neg(DType::kFloat8E4M3FNUZ), {0, 0x80, 1}),
            (std::vector<uint8_t>{0, 0x80, 0x81}));
  EXPECT_EQ(Transformed<uint8_t>(neg(DType::kFloat4E2M1FNX2), {0x2f}),
            (std::vector<uint8_t>{0xa7}));
  EXPECT_EQ(Transformed<uint8_t>(neg(DType::kBool), {1, 0}),
            (std::vector<uint8_t>{1, 0}));
}

TEST(Element, StepsComeBeforeTheConversion) {
  std::vector<uint32_t> src(1500, __builtin_bswap32(0x3fc00000u));  // 1.5
  std::vector<double> dst(src.size());
  TransformElements({.swap_bytes = true,
                     .neg = true,
                     .from = DType::kFloat32,
                     .to = DType::kFloat64},
                    reinterpret_cast<const uint8_t*>(src.data()),
                    reinterpret_cast<uint8_t*>(dst.data()), src.size());
  EXPECT_EQ(dst, std::vector<double>(src.size(), -1.5));
}

TEST(Element, AlignmentDoesNotMatter) {
  std::vector<uint8_t> src(1 + 4 * 700);
  for (size_t i = 0; i < 700; ++i) {
    const float value = static_cast<float>(i) - 350;
    std::memcpy(src.data() + 1 + 4 * i, &value, sizeof(value));
  }
  std::vector<uint8_t> dst(3 + 2 * 700);
  std::vector<uint8_t> back(src.size());
  TransformElements({.from = DType::kFloat32, .to = DType::kFloat16},
                    src.data() + 1, dst.data() + 3, 700);
  TransformElements({.from = DType::kFloat16, .to = DType::kFloat32},
                    dst.data() + 3, back.data() + 1, 700);
  EXPECT_EQ(back, src);
}

}  // namespace
}  // namespace dcp
