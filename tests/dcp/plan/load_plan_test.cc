#include "dcp/plan/load_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/plan/random.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

LoadPlan PlanByPairs(const std::vector<Box>& wanted,
                     const std::vector<Box>& stored) {
  LoadPlan plan;
  for (size_t w = 0; w < wanted.size(); ++w) {
    for (size_t c = 0; c < stored.size(); ++c) {
      const std::optional<Box> overlap = Intersect(wanted[w], stored[c]);
      if (!overlap.has_value()) continue;
      plan.push_back({.wanted = static_cast<uint32_t>(w),
                      .chunk = static_cast<uint32_t>(c),
                      .overlap = *overlap});
    }
  }
  std::sort(plan.begin(), plan.end(),
            [&](const ReadItem& a, const ReadItem& b) {
              return std::tie(a.wanted, stored[a.chunk].offsets) <
                     std::tie(b.wanted, stored[b.chunk].offsets);
            });
  return plan;
}

TEST(LoadPlan, EqualsThePlanByPairs) {
  testing::Random random;
  for (int round = 0; round < 300; ++round) {
    const Dims shape = random.Shape(4, 12);
    const std::vector<Box> stored = random.Tiling(shape, random.Uniform(0, 40));
    std::vector<Box> wanted = random.Tiling(shape, random.Uniform(0, 40));
    wanted.push_back(random.BoxInside(WholeBox(shape)));
    ASSERT_OK_AND_ASSIGN(const LoadPlan plan, PlanLoad(wanted, stored));
    EXPECT_EQ(plan, PlanByPairs(wanted, stored));
  }
}

TEST(LoadPlan, RefusesWhatIsStoredNowhere) {
  const std::vector<Box> stored = {{.offsets = {0}, .sizes = {3}},
                                   {.offsets = {4}, .sizes = {2}}};
  EXPECT_OK(PlanLoad({{.offsets = {1}, .sizes = {2}}}, stored));
  EXPECT_THAT(PlanLoad({{.offsets = {1}, .sizes = {4}}}, stored),
              StatusIs(absl::StatusCode::kDataLoss,
                       "1 of the 4 elements of [1:5] are in no chunk"));
  EXPECT_THAT(PlanLoad({Box{}}, {}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no chunk")));
}

TEST(LoadPlan, EmptyBoxesNeedNothing) {
  const Box empty{.offsets = {6}, .sizes = {0}};
  ASSERT_OK_AND_ASSIGN(const LoadPlan plan, PlanLoad({empty, empty}, {empty}));
  EXPECT_TRUE(plan.empty());
}

}  // namespace
}  // namespace dcp
