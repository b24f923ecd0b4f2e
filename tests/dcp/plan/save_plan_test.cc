// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/save_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/plan/random.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Asks every rank for the boxes there and gives each box to one of the holders.
std::vector<SavePlan> PlanRankByRank(const std::vector<SaveItem>& items,
                                     const Mesh& mesh) {
  const auto num_ranks = static_cast<size_t>(mesh.num_ranks());
  std::vector<SavePlan> plans(num_ranks);
  std::vector<int64_t> bytes(num_ranks, 0);
  for (size_t i = 0; i < items.size(); ++i) {
    std::vector<std::pair<Box, std::vector<size_t>>> holders;
    for (size_t rank = 0; rank < num_ranks; ++rank) {
      const auto boxes =
          LocalBoxes(items[i].shape, mesh, items[i].placements,
                     mesh.Coordinate(static_cast<int64_t>(rank)));
      EXPECT_OK(boxes);
      for (const Box& box : *boxes) {
        const auto known =
            std::find_if(holders.begin(), holders.end(),
                         [&](const auto& other) { return other.first == box; });
        if (known == holders.end()) {
          holders.push_back({box, {rank}});
        } else if (Volume(box.sizes) > 0) {
          known->second.push_back(rank);
        }
      }
    }
    for (const auto& [box, ranks] : holders) {
      size_t best = ranks[0];
      for (const size_t rank : ranks) {
        if (bytes[rank] < bytes[best]) best = rank;
      }
      bytes[best] +=
          Volume(box.sizes) * static_cast<int64_t>(items[i].element_bytes);
      plans[best].push_back({.item = static_cast<uint32_t>(i), .box = box});
    }
  }
  return plans;
}

Mesh RandomMesh(testing::Random& random) {
  Mesh mesh;
  for (int64_t a = random.Uniform(0, 3); a > 0; --a) {
    mesh.axes.push_back(
        {.name = absl::StrCat("axis", a), .size = random.Uniform(1, 4)});
  }
  return mesh;
}

SaveItem RandomItem(testing::Random& random, const Mesh& mesh) {
  SaveItem item{.shape = random.Shape(3, 9),
                .element_bytes = uint64_t{1} << random.Uniform(0, 3),
                .placements = Placements(mesh.axes.size())};
  if (!item.shape.empty() && random.Uniform(0, 9) == 0) item.shape[0] = 0;
  for (Placement& p : item.placements) {
    if (item.shape.empty() || random.Uniform(0, 2) == 0) continue;
    p.dim = random.Uniform(0, static_cast<int64_t>(item.shape.size()) - 1);
    p.kind = Placement::Kind::kShard;
    if (random.Uniform(0, 3) == 0) {
      p.kind = Placement::Kind::kStridedShard;
      p.split_factor = random.Uniform(1, 4);
    }
  }
  return item;
}

TEST(SavePlan, EqualsThePlanMadeRankByRank) {
  testing::Random random;
  for (int round = 0; round < 200; ++round) {
    const Mesh mesh = RandomMesh(random);
    std::vector<SaveItem> items;
    for (int64_t i = random.Uniform(0, 8); i > 0; --i) {
      items.push_back(RandomItem(random, mesh));
    }
    ASSERT_OK_AND_ASSIGN(const std::vector<SavePlan> plans,
                         PlanSave(items, mesh));
    EXPECT_EQ(plans, PlanRankByRank(items, mesh));
  }
}

TEST(SavePlan, SpreadsReplicasEvenly) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("replicate=4"));
  ASSERT_OK_AND_ASSIGN(const Placements replicate, ParsePlacements("R"));
  const std::vector<SaveItem> items(
      8, {.shape = {10}, .element_bytes = 4, .placements = replicate});
  ASSERT_OK_AND_ASSIGN(const std::vector<SavePlan> plans,
                       PlanSave(items, mesh));
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(plans[rank],
              (SavePlan{{.item = rank, .box = WholeBox({10})},
                        {.item = rank + 4, .box = WholeBox({10})}}));
  }
}

TEST(SavePlan, EmptyShardsAreWrittenOnce) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("shard=4"));
  ASSERT_OK_AND_ASSIGN(const Placements shard, ParsePlacements("S(0)"));
  ASSERT_OK_AND_ASSIGN(
      const std::vector<SavePlan> plans,
      PlanSave({{.shape = {1}, .element_bytes = 4, .placements = shard}},
               mesh));
  EXPECT_EQ(plans[0].size(), 1u);
  EXPECT_EQ(plans[1],
            (SavePlan{{.item = 0, .box = {.offsets = {1}, .sizes = {0}}}}));
  EXPECT_TRUE(plans[2].empty());
  EXPECT_TRUE(plans[3].empty());
}

TEST(SavePlan, NamesTheFaultyItem) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("shard=4"));
  ASSERT_OK_AND_ASSIGN(const Placements shard, ParsePlacements("S(0)"));
  const SaveItem good{.shape = {4}, .placements = shard};
  EXPECT_THAT(
      PlanSave({good, {.shape = {}, .placements = shard}}, mesh),
      StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("item 1: ")));
  EXPECT_THAT(PlanSave({good, good, {.shape = {4}, .placements = {}}}, mesh),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("item 2: 0 placements")));
  EXPECT_THAT(PlanSave({{.shape = {INT64_MAX, 2}, .placements = shard}}, mesh),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("shape")));
}

}  // namespace
}  // namespace dcp
