// SPDX-License-Identifier: Apache-2.0

#include "fsdp/mesh/mesh_axis.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MeshAxis MakeAxis(std::vector<MeshExtent> extents) {
  return {.name = "axis", .extents = std::move(extents), .group = nullptr};
}

TEST(MeshAxis, AxesOfAGridAreRowMajor) {
  const std::vector<MeshAxis> axes = GridAxes({2, 3}, {"a", "b"});
  EXPECT_THAT(axes[0].extents, ElementsAre(MeshExtent{2, 3}));
  EXPECT_THAT(axes[1].extents, ElementsAre(MeshExtent{3, 1}));
  EXPECT_EQ(axes[1].name, "b");
  EXPECT_THAT(GridAxes({2, 3}, {}, /*stride=*/4)[0].extents,
              ElementsAre(MeshExtent{2, 12}));
}

TEST(MeshAxis, PlacesLieOnTheExtents) {
  // The first and the last axis of a (2, 2, 2) grid, flattened.
  const MeshAxis axis = MakeAxis({{2, 4}, {2, 1}});
  EXPECT_EQ(AxisSize(axis), 4);
  EXPECT_THAT(AxisOffsets(axis), ElementsAre(0, 1, 4, 5));
  EXPECT_EQ(CoordinateOn(axis, 7), 3);
  EXPECT_EQ(CoordinateOn(axis, 2), 0);
  EXPECT_THAT(SpannedPlaces({axis}, 3), ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(SpannedPlaces({MakeAxis({{2, 1}}), MakeAxis({{2, 4}})}, 2),
              ElementsAre(2, 6, 3, 7));
}

TEST(MeshAxis, CanonicalExtentsIdentifyEqualRanks) {
  EXPECT_THAT(Canonical(MakeAxis({{2, 4}, {1, 4}, {4, 1}})),
              ElementsAre(MeshExtent{8, 1}));
  EXPECT_THAT(Canonical(MakeAxis({{2, 4}, {2, 1}})),
              ElementsAre(MeshExtent{2, 4}, MeshExtent{2, 1}));
  // The same places in another order.
  EXPECT_THAT(Canonical(MakeAxis({{2, 1}, {2, 2}})),
              ElementsAre(MeshExtent{2, 1}, MeshExtent{2, 2}));
  EXPECT_THAT(Canonical(MakeAxis({{1, 8}})), IsEmpty());
}

TEST(MeshAxis, OverlapIsAStepOnBoth) {
  // Eight places as (2, 4) and as (4, 2).
  const MeshAxis two_of_four = MakeAxis({{2, 4}}), four = MakeAxis({{4, 1}});
  const MeshAxis four_of_two = MakeAxis({{4, 2}}), two = MakeAxis({{2, 1}});
  EXPECT_FALSE(Overlap(two_of_four, four));
  EXPECT_FALSE(Overlap(four_of_two, two));
  EXPECT_FALSE(Overlap(two_of_four, two));
  EXPECT_TRUE(Overlap(two_of_four, four_of_two));
  EXPECT_TRUE(Overlap(four, four_of_two));
  EXPECT_TRUE(Overlap(two, four));
  EXPECT_FALSE(Overlap(MakeAxis({{1, 2}}), four));
}

}  // namespace
}  // namespace fsdp
