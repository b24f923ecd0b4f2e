// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/disjoint.h"

#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/dcp/plan/random.h"

namespace dcp {
namespace {

using Pair = std::pair<uint32_t, uint32_t>;

std::optional<Pair> FindAnyOverlap(const std::vector<Box>& boxes) {
  std::vector<uint32_t> members(boxes.size());
  std::iota(members.begin(), members.end(), 0);
  return FindOverlap(boxes, members);
}

bool AnyPairOverlaps(const std::vector<Box>& boxes) {
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (Intersect(boxes[i], boxes[j]).has_value()) return true;
    }
  }
  return false;
}

TEST(Disjoint, AgreesWithComparingAllPairs) {
  testing::Random random;
  int num_overlapping = 0;
  for (int round = 0; round < 300; ++round) {
    const Dims shape = random.Shape(4, 40);
    std::vector<Box> boxes;
    for (const Box& box : random.Tiling(shape, random.Uniform(0, 150))) {
      if (Volume(box.sizes) > 0) boxes.push_back(box);
    }
    if (round % 2 == 0) boxes.push_back(random.BoxInside(WholeBox(shape)));
    const std::optional<Pair> found = FindAnyOverlap(boxes);
    ASSERT_EQ(found.has_value(), AnyPairOverlaps(boxes));
    if (!found.has_value()) continue;
    ++num_overlapping;
    EXPECT_LT(found->first, found->second);
    EXPECT_TRUE(
        Intersect(boxes[found->first], boxes[found->second]).has_value());
  }
  EXPECT_GE(num_overlapping, 100);
}

TEST(Disjoint, FindsOneOverlapInAGrid) {
  std::vector<Box> boxes;
  for (int64_t row = 0; row < 100; ++row) {
    for (int64_t column = 0; column < 100; ++column) {
      boxes.push_back({.offsets = {row * 2, column * 3}, .sizes = {2, 3}});
    }
  }
  EXPECT_EQ(FindAnyOverlap(boxes), std::nullopt);
  boxes[4711].sizes[1] = 4;
  EXPECT_EQ(FindAnyOverlap(boxes), Pair(4711, 4712));
}

TEST(Disjoint, BoxesWithoutDimensionsOverlap) {
  EXPECT_EQ(FindAnyOverlap({}), std::nullopt);
  EXPECT_EQ(FindAnyOverlap({Box{}}), std::nullopt);
  EXPECT_EQ(FindAnyOverlap(std::vector<Box>(50)), Pair(0, 1));
}

TEST(Disjoint, EqualBoxesOverlap) {
  const std::vector<Box> boxes(1000, Box{.offsets = {1, 2}, .sizes = {3, 4}});
  EXPECT_TRUE(FindAnyOverlap(boxes).has_value());
}

// A comb with teeth and spaces that are cut along different dimensions: sorting
// along either one would leave thousands side by side.
TEST(Disjoint, EndsSoonForBoxesCutAlongDifferentDimensions) {
  constexpr int64_t kSize = 20000;
  std::vector<Box> boxes;
  for (int64_t i = 1; i <= kSize; ++i) {
    boxes.push_back({.offsets = {i, 0, 0}, .sizes = {1, 1, kSize}});
    boxes.push_back({.offsets = {0, i, 0}, .sizes = {kSize, 1, 1}});
    boxes.push_back({.offsets = {0, 1, i}, .sizes = {kSize, kSize, 1}});
  }
  EXPECT_EQ(FindAnyOverlap(boxes), std::nullopt);
}

}  // namespace
}  // namespace dcp
