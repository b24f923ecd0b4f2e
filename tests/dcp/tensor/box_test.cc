// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/box.h"

#include <cstdint>
#include <limits>
#include <optional>

#include "gtest/gtest.h"

namespace dcp {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

TEST(Box, IntersectKeepsTheCommonPart) {
  const Box a{.offsets = {0, 3}, .sizes = {4, 4}};
  const Box b{.offsets = {2, 1}, .sizes = {4, 4}};
  const Box common{.offsets = {2, 3}, .sizes = {2, 2}};
  EXPECT_EQ(Intersect(a, b), common);
  EXPECT_EQ(Intersect(b, a), common);
  EXPECT_EQ(Intersect(a, a), a);
}

TEST(Box, IntersectOfTouchingBoxesIsEmpty) {
  const Box a{.offsets = {0, 0}, .sizes = {2, 2}};
  EXPECT_EQ(Intersect(a, {.offsets = {2, 0}, .sizes = {2, 2}}), std::nullopt);
  EXPECT_EQ(Intersect(a, {.offsets = {0, 2}, .sizes = {2, 2}}), std::nullopt);
}

TEST(Box, IntersectWithAnEmptyBoxIsEmpty) {
  const Box a{.offsets = {0}, .sizes = {4}};
  EXPECT_EQ(Intersect(a, {.offsets = {2}, .sizes = {0}}), std::nullopt);
}

TEST(Box, BoxesWithoutDimensionsMeet) {
  EXPECT_EQ(Intersect(Box{}, Box{}), Box{});
  EXPECT_TRUE(Contains(Box{}, Box{}));
  EXPECT_EQ(Volume({}), 1);
  EXPECT_EQ(CheckedVolume({}), 1);
  EXPECT_EQ(WholeBox({}), Box{});
}

TEST(Box, CheckedVolumeRefusesOverflow) {
  EXPECT_EQ(CheckedVolume({2, 3, 4}), 24);
  EXPECT_EQ(CheckedVolume({2, 0, 4}), 0);
  EXPECT_EQ(CheckedVolume({kMax}), kMax);
  EXPECT_EQ(CheckedVolume({kMax, 2}), std::nullopt);
  EXPECT_EQ(CheckedVolume({int64_t{1} << 40, 0, int64_t{1} << 40}),
            std::nullopt);
  EXPECT_EQ(CheckedVolume({3, -1}), std::nullopt);
  EXPECT_EQ(CheckedVolume({0, kMin}), std::nullopt);
}

TEST(Box, ContainsSurvivesHostileNumbers) {
  const Box whole = WholeBox({4, 5});
  EXPECT_TRUE(Contains(whole, whole));
  EXPECT_TRUE(Contains(whole, {.offsets = {4, 0}, .sizes = {0, 5}}));
  EXPECT_FALSE(Contains(whole, {.offsets = {3, 0}, .sizes = {2, 5}}));
  EXPECT_FALSE(Contains(whole, {.offsets = {-1, 0}, .sizes = {2, 5}}));
  EXPECT_FALSE(Contains(whole, {.offsets = {1, 0}, .sizes = {-1, 5}}));
  EXPECT_FALSE(Contains(whole, {.offsets = {kMax, 0}, .sizes = {kMax, 5}}));
  EXPECT_FALSE(Contains(whole, {.offsets = {kMin, 0}, .sizes = {kMin, 5}}));
  EXPECT_FALSE(Contains(whole, {.offsets = {0}, .sizes = {4}}));
  EXPECT_FALSE(Contains(whole, {.offsets = {0, 0}, .sizes = {4}}));
}

TEST(Box, RowMajorStridesCountEmptyDimensionsAsOne) {
  EXPECT_EQ(RowMajorStrides({2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(RowMajorStrides({2, 0, 4}), (Dims{4, 4, 1}));
  EXPECT_EQ(RowMajorStrides({}), Dims{});
}

TEST(Box, PrintsHalfOpenRanges) {
  EXPECT_EQ(ToString(Box{.offsets = {0, 3}, .sizes = {2, 2}}), "[0:2, 3:5]");
  EXPECT_EQ(ToString(Box{}), "[]");
  EXPECT_EQ(ToString(Box{.offsets = {1}, .sizes = {kMax}}),
            "[1:1+9223372036854775807]");
  EXPECT_EQ(ShapeToString({2, 3}), "[2, 3]");
}

}  // namespace
}  // namespace dcp
