// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/strided_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "dcp/tensor/dtype.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

using Loops = std::vector<CopyLoop>;

class StridedCopyTest : public ::testing::Test {
 protected:
  StridedCopyTest() {
    const auto seed = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed));
    std::cerr << "seed " << seed << " (set it by --gtest_random_seed)\n";
    generator_.seed(seed);
  }

  uint64_t Uniform(uint64_t low, uint64_t high) {
    return std::uniform_int_distribution<uint64_t>(low, high)(generator_);
  }

  std::vector<uint8_t> RandomBytes(uint64_t size) {
    std::vector<uint8_t> bytes(size);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator_());
    return bytes;
  }

  std::mt19937_64 generator_;
};

// The bytes from the first to the last that one side of a copy touches.
uint64_t TouchedBytes(uint64_t unit_bytes, const Loops& loops,
                      uint64_t CopyLoop::*stride) {
  uint64_t reach = unit_bytes;
  for (const CopyLoop& loop : loops) {
    if (loop.count == 0) return 0;
    reach += (loop.count - 1) * (loop.*stride);
  }
  return reach;
}

// The result of both functions, unit by unit.
template <typename Copy>
void UnitByUnit(const uint8_t* src, uint8_t* dst,
                absl::Span<const CopyLoop> loops, const Copy& copy) {
  if (loops.empty()) return copy(src, dst);
  for (uint64_t i = 0; i < loops[0].count; ++i) {
    UnitByUnit(src + i * loops[0].src_stride, dst + i * loops[0].dst_stride,
               loops.subspan(1), copy);
  }
}

void ExpectCopiesAsALoopDoes(const std::vector<uint8_t>& src,
                             uint64_t unit_bytes, const Loops& loops,
                             uint64_t misalignment) {
  const uint64_t size =
      TouchedBytes(unit_bytes, loops, &CopyLoop::dst_stride) + misalignment;
  std::vector<uint8_t> expected(size + 1, 0xAB);
  std::vector<uint8_t> copied = expected;
  UnitByUnit(src.data(), expected.data() + misalignment, loops,
             [&](const uint8_t* from, uint8_t* to) {
               std::memcpy(to, from, unit_bytes);
             });
  CopyStrided({src.data(), copied.data() + misalignment}, unit_bytes, loops);
  ASSERT_TRUE(copied == expected);
}

TEST_F(StridedCopyTest, CopiesAsALoopDoes) {
  for (int round = 0; round < 3000; ++round) {
    const uint64_t unit_bytes =
        Uniform(0, 1) == 0 ? uint64_t{1} << Uniform(0, 4) : Uniform(1, 70);
    Loops loops(Uniform(0, 4));
    uint64_t dst_reach = unit_bytes;
    for (CopyLoop& loop : loops) {
      loop.count = Uniform(0, 19) == 0 ? 0 : Uniform(1, 9);
      loop.dst_stride = dst_reach + (Uniform(0, 2) == 0 ? Uniform(0, 5) : 0);
      loop.src_stride = Uniform(0, 5) == 0 ? 0 : Uniform(1, 300);
      dst_reach += (std::max<uint64_t>(loop.count, 1) - 1) * loop.dst_stride;
    }
    std::shuffle(loops.begin(), loops.end(), generator_);
    const std::vector<uint8_t> src = RandomBytes(std::max<uint64_t>(
        1, TouchedBytes(unit_bytes, loops, &CopyLoop::src_stride)));
    ExpectCopiesAsALoopDoes(src, unit_bytes, loops, Uniform(0, 20));
  }
}

// Whole tiles, tiles at the edges, lines that begin anywhere, and matrices
// large enough to go around the cache.
TEST_F(StridedCopyTest, TransposesAsALoopDoes) {
  for (const uint64_t element : {1, 2, 4, 8, 16}) {
    for (int round = 0; round < 20; ++round) {
      const bool large = round < 4;
      const uint64_t scale = large ? 700 / element : 150;
      const uint64_t rows =
          round % 2 == 0 ? Uniform(1, 9) * 64 / element * 4 : Uniform(1, scale);
      const uint64_t columns = Uniform(large ? scale : 1, 2 * scale);
      const uint64_t src_pitch = columns * element + Uniform(0, 3) * element;
      const uint64_t dst_pitch =
          rows * element + (round % 3 == 0 ? 0 : Uniform(0, 70));
      const std::vector<uint8_t> src = RandomBytes(rows * src_pitch);
      ExpectCopiesAsALoopDoes(
          src, element,
          {{columns, element, dst_pitch}, {rows, src_pitch, element}},
          round % 2 == 0 ? Uniform(0, 8) * element : Uniform(0, 70));
    }
  }
}

TEST_F(StridedCopyTest, TransposesALargeMatrixAroundTheCache) {
  for (const uint64_t element : {1, 2, 4, 8, 16}) {
    const uint64_t rows = 256 / element + 3;
    const uint64_t columns = (700 << 10) / (rows * element);
    const uint64_t dst_pitch = (rows * element + 63) / 64 * 64;
    const std::vector<uint8_t> src = RandomBytes(rows * columns * element);
    for (const uint64_t misalignment : {0, 16, 48}) {
      ExpectCopiesAsALoopDoes(
          src, element,
          {{columns, element, dst_pitch}, {rows, columns * element, element}},
          misalignment);
    }
  }
}

// A few rows of a large matrix: their lines are far apart.
TEST_F(StridedCopyTest, TransposesAFewRowsOfALargeMatrix) {
  for (const uint64_t element : {1, 2, 4, 8, 16}) {
    for (int round = 0; round < 20; ++round) {
      const uint64_t rows = Uniform(1, 3 * 64 / element);
      const uint64_t columns = Uniform(70, 150);
      const uint64_t src_pitch = columns * element + Uniform(0, 70);
      const std::vector<uint8_t> src = RandomBytes(rows * src_pitch);
      ExpectCopiesAsALoopDoes(
          src, element, {{columns, element, 4096}, {rows, src_pitch, element}},
          Uniform(0, 1) * 16 + Uniform(0, 1) * Uniform(0, 63));
    }
  }
}

void ExpectTransformsAsALoopDoes(const std::vector<uint8_t>& src,
                                 const ElementTransform& transform,
                                 uint64_t unit, const Loops& loops) {
  const uint64_t size = TouchedBytes(unit * ElementSize(transform.to), loops,
                                     &CopyLoop::dst_stride);
  std::vector<uint8_t> expected(size + 1, 0xAB);
  std::vector<uint8_t> copied = expected;
  uint64_t expected_beyond = 0;
  uint64_t num_beyond = 0;
  UnitByUnit(src.data(), expected.data(), loops,
             [&](const uint8_t* from, uint8_t* to) {
               TransformElements(transform, from, to, unit, &expected_beyond);
             });
  TransformStrided(transform, {src.data(), copied.data()}, unit, loops,
                   &num_beyond);
  ASSERT_TRUE(copied == expected);
  EXPECT_EQ(num_beyond, expected_beyond);
}

TEST_F(StridedCopyTest, TransformsAsALoopDoes) {
  const ElementTransform transforms[] = {
      {.from = DType::kFloat32, .to = DType::kBFloat16},
      {.from = DType::kBFloat16, .to = DType::kFloat32},
      {.from = DType::kFloat32, .to = DType::kFloat8E4M3FN},
      {.swap_bytes = true, .from = DType::kInt64, .to = DType::kInt64},
      {.conj = true, .from = DType::kComplex128, .to = DType::kComplex128}};
  for (int round = 0; round < 400; ++round) {
    const ElementTransform& transform = transforms[Uniform(0, 4)];
    const uint64_t src_bytes = ElementSize(transform.from);
    const uint64_t dst_bytes = ElementSize(transform.to);
    const uint64_t unit = Uniform(0, 2) > 0 ? 1 : Uniform(1, 50);
    Loops loops(Uniform(0, 3));
    uint64_t dst_reach = unit * dst_bytes;
    for (CopyLoop& loop : loops) {
      loop.count =
          Uniform(0, 19) == 0 ? 0 : Uniform(1, loops.size() > 2 ? 12 : 40);
      loop.dst_stride = dst_reach + (Uniform(0, 2) == 0 ? dst_bytes : 0);
      loop.src_stride = Uniform(0, 5) == 0 ? 0 : Uniform(1, 99) * src_bytes;
      dst_reach += (std::max<uint64_t>(loop.count, 1) - 1) * loop.dst_stride;
    }
    std::shuffle(loops.begin(), loops.end(), generator_);
    const std::vector<uint8_t> src = RandomBytes(std::max<uint64_t>(
        1, TouchedBytes(unit * src_bytes, loops, &CopyLoop::src_stride)));
    ExpectTransformsAsALoopDoes(src, transform, unit, loops);
  }
}

TEST_F(StridedCopyTest, TransposesAndCasts) {
  const std::vector<uint8_t> src = RandomBytes(84000);  // 300 x 70
  ExpectTransformsAsALoopDoes(src,
                              {.from = DType::kFloat32, .to = DType::kBFloat16},
                              1, {{300, 4, 140}, {70, 1200, 2}});
}

}  // namespace
}  // namespace dcp
