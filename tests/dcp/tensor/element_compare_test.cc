// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "dcp/tensor/element.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

constexpr uint64_t kFarthest = std::numeric_limits<uint64_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
ElementDifference Compared(DType dtype, const std::vector<T>& a,
                           const std::vector<T>& b, uint64_t first_index = 0,
                           const std::optional<Tolerance>& tolerance = {}) {
  ElementDifference difference;
  CompareElements(dtype, reinterpret_cast<const uint8_t*>(a.data()),
                  reinterpret_cast<const uint8_t*>(b.data()),
                  a.size() * sizeof(T) / ElementSize(dtype), first_index,
                  difference, tolerance);
  return difference;
}

// How many elements are not within the tolerance.
template <typename T>
uint64_t NumOutside(DType dtype, const std::vector<T>& a,
                    const std::vector<T>& b, const Tolerance& tolerance) {
  return Compared(dtype, a, b, 0, tolerance).num_different;
}

TEST(ElementCompare, EqualRunsDoNotDiffer) {
  const std::vector<uint8_t> bytes(9600, 0xa5);
  for (int i = 0; i < kNumDTypes; ++i) {
    const ElementDifference difference =
        Compared(static_cast<DType>(i), bytes, bytes);
    EXPECT_EQ(difference.num_different, 0u);
    EXPECT_EQ(difference.max_ulp, 0u);
  }
}

TEST(ElementCompare, CountsAndFindsTheFirst) {
  std::vector<int32_t> a(5000, 7);
  std::vector<int32_t> b = a;
  b[3000] = 9;
  b[4999] = -3;
  const ElementDifference difference = Compared(DType::kInt32, a, b, 100);
  EXPECT_EQ(difference.num_different, 2u);
  EXPECT_EQ(difference.first_different, 3100u);
  EXPECT_EQ(difference.max_abs, 10);
  EXPECT_EQ(difference.max_ulp, 10u);
}

TEST(ElementCompare, AddsToTheGivenDifference) {
  ElementDifference difference;
  const float a = 1, b = 2, c = 4;
  const auto compare = [&](const float& x, const float& y, uint64_t index) {
    CompareElements(DType::kFloat32, reinterpret_cast<const uint8_t*>(&x),
                    reinterpret_cast<const uint8_t*>(&y), 1, index, difference);
  };
  compare(a, c, 5);
  compare(a, b, 6);
  EXPECT_EQ(difference.num_different, 2u);
  EXPECT_EQ(difference.first_different, 5u);
  EXPECT_EQ(difference.max_abs, 3);
  EXPECT_EQ(difference.max_ulp, uint64_t{1} << 24);
}

TEST(ElementCompare, UlpCountsTheValuesBetween) {
  const float one = 1;
  const float next = std::nextafter(one, 2.0f);
  EXPECT_EQ(Compared<float>(DType::kFloat32, {one}, {next}).max_ulp, 1u);
  EXPECT_EQ(Compared<float>(DType::kFloat32, {-next}, {-one}).max_ulp, 1u);
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(Compared<float>(DType::kFloat32, {-tiny}, {tiny}).max_ulp, 2u);
  const double huge = std::numeric_limits<double>::max();
  EXPECT_EQ(Compared<double>(DType::kFloat64, {huge}, {-huge}).max_ulp,
            2 * uint64_t{0x7fefffffffffffff});
  EXPECT_EQ(Compared<uint16_t>(DType::kBFloat16, {0x3f80}, {0x3f83}).max_ulp,
            3u);
  EXPECT_EQ(Compared<uint8_t>(DType::kFloat8E4M3FN, {0x81}, {0x02}).max_ulp,
            3u);
}

TEST(ElementCompare, TheZerosHaveDistanceZero) {
  const ElementDifference difference =
      Compared<float>(DType::kFloat32, {0.0f}, {-0.0f});
  EXPECT_EQ(difference.num_different, 1u);
  EXPECT_EQ(difference.max_abs, 0);
  EXPECT_EQ(difference.max_ulp, 0u);
}

TEST(ElementCompare, NanIsInfinitelyFarFromNumbersOnly) {
  const ElementDifference far =
      Compared<uint16_t>(DType::kFloat16, {0x7e00}, {0x3c00});
  EXPECT_EQ(far.max_abs, kInfinity);
  EXPECT_EQ(far.max_ulp, kFarthest);
  const ElementDifference near =
      Compared<uint16_t>(DType::kFloat16, {0x7e00}, {0x7e01});
  EXPECT_EQ(near.num_different, 1u);
  EXPECT_EQ(near.max_abs, 0);
  EXPECT_EQ(Compared<uint8_t>(DType::kFloat8E8M0FNU, {0xff}, {127}).max_abs,
            kInfinity);
}

TEST(ElementCompare, InfinityIsOneUlpFromTheGreatest) {
  const ElementDifference difference =
      Compared<float>(DType::kFloat32, {std::numeric_limits<float>::infinity()},
                      {std::numeric_limits<float>::max()});
  EXPECT_EQ(difference.max_abs, kInfinity);
  EXPECT_EQ(difference.max_ulp, 1u);
}

TEST(ElementCompare, IntegersDoNotOverflow) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Compared<int64_t>(DType::kInt64, {kLeast}, {kMost}).max_ulp,
            kFarthest);
  EXPECT_EQ(Compared<uint64_t>(DType::kUInt64, {0}, {kFarthest}).max_ulp,
            kFarthest);
  EXPECT_EQ(Compared<int8_t>(DType::kInt8, {-128}, {127}).max_abs, 255);
}

TEST(ElementCompare, ComparesComplexAndPackedTypesByParts) {
  const ElementDifference complex =
      Compared<float>(DType::kComplex64, {1, 2, 3, 4}, {1, 2, 3, 6});
  EXPECT_EQ(complex.num_different, 1u);
  EXPECT_EQ(complex.first_different, 1u);
  EXPECT_EQ(complex.max_abs, 2);
  // 6 and -0.5 are packed against 4 and 1.
  const ElementDifference packed =
      Compared<uint8_t>(DType::kFloat4E2M1FNX2, {0x97}, {0x26});
  EXPECT_EQ(packed.num_different, 1u);
  EXPECT_EQ(packed.max_abs, 2);
  EXPECT_EQ(packed.max_ulp, 3u);
  EXPECT_EQ(Compared<uint8_t>(DType::kFloat8E8M0FNU, {127}, {129}).max_abs, 3);
}

TEST(ElementCompare, RelativeDifferencesReferToTheSecond) {
  EXPECT_EQ(Compared<float>(DType::kFloat32, {1, 6}, {2, 4}).max_rel, 0.5);
  EXPECT_EQ(Compared<float>(DType::kFloat32, {1}, {0}).max_rel, kInfinity);
  EXPECT_EQ(Compared<float>(DType::kFloat32, {0.0f}, {-0.0f}).max_rel, 0);
  EXPECT_EQ(Compared<int32_t>(DType::kInt32, {-3}, {-4}).max_rel, 0.25);
  EXPECT_EQ(Compared<uint8_t>(DType::kFloat4E2M1FNX2, {0x97}, {0x26}).max_rel,
            1.5);
}

TEST(ElementCompare, WithinTheToleranceElementsAreEqual) {
  const std::vector<double> a = {1, 100, 0.0, -8};
  const std::vector<double> b = {1.5, 101, -0.0, -4};
  EXPECT_EQ(NumOutside(DType::kFloat64, a, b, {}), 3u);
  EXPECT_EQ(NumOutside(DType::kFloat64, a, b, {.atol = 0.5}), 2u);
  EXPECT_EQ(NumOutside(DType::kFloat64, a, b, {.rtol = 0.01}), 2u);
  EXPECT_EQ(NumOutside(DType::kFloat64, a, b, {.atol = 0.5, .rtol = 0.01}), 1u);
  // rtol is relative to B.
  EXPECT_EQ(NumOutside(DType::kFloat64, a, b, {.rtol = 0.5}), 1u);
  EXPECT_EQ(NumOutside(DType::kFloat64, b, a, {.rtol = 0.5}), 0u);
  const ElementDifference outside =
      Compared(DType::kFloat64, a, b, 10, Tolerance{.atol = 0.5});
  EXPECT_EQ(outside.first_different, 11u);
  EXPECT_EQ(outside.max_abs, 4);
  EXPECT_EQ(outside.max_rel, 1);
}

TEST(ElementCompare, AToleranceHandlesInfinityAndNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const Tolerance wide{.atol = 1e300, .rtol = 1};
  const auto outside = [](float a, float b, const Tolerance& tolerance) {
    return NumOutside<float>(DType::kFloat32, {a}, {b}, tolerance) == 1;
  };
  EXPECT_FALSE(outside(infinity, infinity, wide));
  EXPECT_TRUE(outside(infinity, -infinity, wide));
  EXPECT_TRUE(outside(infinity, 1, wide));
  EXPECT_TRUE(outside(1, infinity, wide));
  EXPECT_FALSE(outside(nan, -nan, wide));
  EXPECT_TRUE(outside(nan, 1, wide));
  const Tolerance strict{.atol = 1, .equal_nan = false};
  EXPECT_TRUE(outside(nan, nan, strict));
  EXPECT_FALSE(outside(1, 1, strict));
}

TEST(ElementCompare, AToleranceAppliesToEveryType) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(NumOutside<int64_t>(DType::kInt64, {kMost, kMost}, {kMost - 1, 1},
                                {.atol = 1}),
            1u);
  EXPECT_EQ(NumOutside<int64_t>(DType::kInt64, {kMost}, {kMost - 1}, {}), 1u);
  EXPECT_EQ(NumOutside<uint8_t>(DType::kBool, {0, 1}, {1, 1}, {.atol = 1}), 0u);
  // For complex numbers the modulus counts: |3 + 4i| is 5.
  EXPECT_EQ(NumOutside<float>(DType::kComplex64, {3, 4}, {0, 0}, {.atol = 5}),
            0u);
  EXPECT_EQ(NumOutside<float>(DType::kComplex64, {3, 4}, {0, 0}, {.atol = 4}),
            1u);
  EXPECT_EQ(NumOutside<uint16_t>(DType::kBFloat16, {0x3f80}, {0x3f81},
                                 {.rtol = 0.01}),
            0u);
  // 6 and -0.5 against 4 and 1; both have to be close.
  EXPECT_EQ(
      NumOutside<uint8_t>(DType::kFloat4E2M1FNX2, {0x97}, {0x26}, {.atol = 2}),
      0u);
  EXPECT_EQ(NumOutside<uint8_t>(DType::kFloat4E2M1FNX2, {0x97}, {0x26},
                                {.atol = 1.5}),
            1u);
  EXPECT_EQ(
      NumOutside<uint8_t>(DType::kFloat8E8M0FNU, {127}, {129}, {.atol = 3}),
      0u);
  EXPECT_EQ(
      NumOutside<uint8_t>(DType::kFloat8E8M0FNU, {0xff}, {129}, {.atol = 3}),
      1u);
}

}  // namespace
}  // namespace dcp
