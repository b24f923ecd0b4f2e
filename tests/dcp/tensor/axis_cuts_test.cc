// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/axis_cuts.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ::dcp::testing::kInvalid;

// The placements for cuts on a mesh as text, or the error's text.
std::string Placed(absl::string_view mesh_spec, absl::string_view cuts_spec) {
  const absl::StatusOr<Mesh> mesh = ParseMesh(mesh_spec);
  const absl::StatusOr<std::vector<AxisCut>> cuts = ParseAxisCuts(cuts_spec);
  if (!cuts.ok()) return std::string(cuts.status().message());
  const absl::StatusOr<Placements> placements = PlacementsForCuts(*mesh, *cuts);
  return placements.ok() ? ToString(*placements)
                         : std::string(placements.status().message());
}

// PyTorch's fully_shard uses these placements for parameters that are already
// cut.
TEST(AxisCuts, EqualFullyShardsPlacements) {
  EXPECT_EQ(Placed("dp=2,tp=2", "tp:S(0),dp:S(0)"), "SS(0,2),S(0)");
  EXPECT_EQ(Placed("dp=2,tp=2", "dp:S(0),tp:S(0)"), "S(0),S(0)");
  EXPECT_EQ(Placed("dp=2,tp=4", "tp:S(1),dp:S(0)"), "S(0),S(1)");
  EXPECT_EQ(Placed("dp=2,tp=4", "tp:S(1),dp:S(1)"), "SS(1,4),S(1)");
  EXPECT_EQ(Placed("dp=2,tp=4", "dp:S(0)"), "S(0),R");
  EXPECT_EQ(Placed("dp=2,tp=4", "tp:R, dp : S(0)"), "S(0),R");
  EXPECT_EQ(Placed("rep=2,dp=2,tp=2", "tp:S(0),dp:S(0)"), "R,SS(0,2),S(0)");
  EXPECT_EQ(Placed("rep=2,efsdp=2,ep=2,etp=3", "ep:S(0),etp:S(1),efsdp:S(1)"),
            "R,SS(1,3),S(0),S(1)");
  EXPECT_EQ(Placed("dp=2,ep=2,etp=3", "ep:S(0),etp:S(0),dp:S(0)"),
            "SS(0,6),S(0),S(0)");
}

TEST(AxisCuts, AnAxisOfOneRankDoesNotMakeAShardStrided) {
  EXPECT_EQ(Placed("dp=2,tp=1", "tp:S(0),dp:S(0)"), "S(0),S(0)");
}

// A rank's rows after the axes have cut one after the other.
TEST(AxisCuts, HoldTheRowsAfterEachAxisHasCut) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("a=2,b=3,c=2"));
  ASSERT_OK_AND_ASSIGN(const std::vector<AxisCut> cuts,
                       ParseAxisCuts("c:S(0),a:S(0),b:S(0)"));
  ASSERT_OK_AND_ASSIGN(const Placements placements,
                       PlacementsForCuts(mesh, cuts));
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    const Dims at = mesh.Coordinate(rank);
    ASSERT_OK_AND_ASSIGN(const std::vector<Box> boxes,
                         LocalBoxes({24}, mesh, placements, at));
    ASSERT_EQ(boxes.size(), 1);
    // c cuts 24 rows into 12, a those into 6, b those into 2.
    EXPECT_THAT(boxes[0].offsets,
                ElementsAre(12 * at[2] + 6 * at[0] + 2 * at[1]));
    EXPECT_THAT(boxes[0].sizes, ElementsAre(2));
  }
}

TEST(AxisCuts, MistakesAreNamed) {
  const std::vector<std::pair<const char*, const char*>> mistakes = {
      {"dp:S(0),tp", "\"tp\" is not AXIS:S(dim) or AXIS:R"},
      {":S(0)", "either all placements name their axes, or none does"},
      {"dp:S(0),dp:R", "the axis dp is named twice"},
      {"tp:SS(0,2)", "follows from the order of the axes"},
      {"tp:S(-1)", "the dim must be 0 to 63"},
      {"tp:X", "is not R, S(dim)"},
      {"tp:", "is not R, S(dim)"},
      {"cp:S(0)", "the mesh dp=2,tp=2 has no axis cp"}};
  for (const auto& [spec, message] : mistakes) {
    EXPECT_THAT(Placed("dp=2,tp=2", spec), HasSubstr(message)) << spec;
  }
  EXPECT_THAT(ParseAxisCuts("").status(), StatusIs(kInvalid));
}

TEST(AxisCuts, DifferFromPlacementsByTheirColons) {
  EXPECT_TRUE(NamesAxes("tp:S(0)"));
  EXPECT_FALSE(NamesAxes("SS(0,2),S(0)"));
}

}  // namespace
}  // namespace dcp
