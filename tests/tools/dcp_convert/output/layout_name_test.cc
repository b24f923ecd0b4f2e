// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/output/layout_name.h"

#include <vector>

#include "gtest/gtest.h"

namespace dcp::tools {
namespace {

TEST(LayoutName, OneChunkIsWhole) {
  EXPECT_EQ(LayoutName({4, 4}, {WholeBox({4, 4})}), "whole");
  EXPECT_EQ(LayoutName({}, {WholeBox({})}), "whole");
  EXPECT_EQ(LayoutName({0}, {}), "whole");
}

TEST(LayoutName, KnowsTheCutsOfTorchChunk) {
  EXPECT_EQ(LayoutName({4, 3}, {Box{{2, 0}, {2, 3}}, Box{{0, 0}, {2, 3}}}),
            "2 x Shard(0)");
  // torch.chunk(7, 3): 3, 3, 1.
  EXPECT_EQ(LayoutName({2, 7}, {Box{{0, 0}, {2, 3}}, Box{{0, 3}, {2, 3}},
                                Box{{0, 6}, {2, 1}}}),
            "3 x Shard(1)");
}

TEST(LayoutName, KnowsGrids) {
  std::vector<Box> boxes;
  for (int64_t i : {0, 2}) {
    for (int64_t j : {0, 1, 2}) boxes.push_back(Box{{i, j}, {2, 1}});
  }
  EXPECT_EQ(LayoutName({4, 3}, boxes), "2 x Shard(0), 3 x Shard(1)");
}

// Boxes of rows, as ranks wrote them: rank r wrote chunk chunks[r] of `size`
// rows.
std::string NameOfRows(std::vector<int64_t> chunks, int64_t size) {
  std::vector<Box> boxes;
  std::vector<int64_t> ranks;
  for (const int64_t chunk : chunks) {
    ranks.push_back(static_cast<int64_t>(ranks.size()));
    boxes.push_back(Box{{chunk * size}, {size}});
  }
  return LayoutName({size * static_cast<int64_t>(chunks.size())}, boxes, ranks);
}

TEST(LayoutName, DerivesAxisOrderFromRanks) {
  EXPECT_EQ(NameOfRows({0, 2, 1, 3}, 3),
            "2 x StridedShard(0, 2), 2 x Shard(0)");
  EXPECT_EQ(NameOfRows({0, 4, 1, 5, 2, 6, 3, 7}, 2),
            "4 x StridedShard(0, 2), 2 x Shard(0)");
  EXPECT_EQ(NameOfRows({0, 2, 4, 6, 1, 3, 5, 7}, 2),
            "2 x StridedShard(0, 4), 4 x Shard(0)");
  EXPECT_EQ(NameOfRows({0, 1, 2, 3}, 3), "4 x Shard(0)");
  EXPECT_EQ(NameOfRows({1, 0}, 3), "2 x Shard(0)");
  EXPECT_EQ(NameOfRows({3, 2, 1, 0}, 3), "4 x Shard(0)");
}

TEST(LayoutName, DoesNotGuessFromReplicas) {
  // Four shards; two other ranks each wrote some.
  const std::vector<Box> boxes = {Box{{0}, {1}}, Box{{2}, {1}}, Box{{1}, {1}},
                                  Box{{3}, {1}}};
  EXPECT_EQ(LayoutName({4}, boxes, {0, 2, 5, 7}), "4 x Shard(0)");
  EXPECT_EQ(LayoutName({4}, boxes, {0, 1, 2, 2}), "4 x Shard(0)");
  EXPECT_EQ(LayoutName({4}, boxes, {0, 1, 2}), "4 x Shard(0)");
  EXPECT_EQ(LayoutName({4}, boxes), "4 x Shard(0)");
}

TEST(LayoutName, SaysWhenPiecesAreUneven) {
  EXPECT_EQ(LayoutName({6}, {Box{{0}, {1}}, Box{{1}, {5}}}),
            "2 x Shard(0) (uneven)");
  EXPECT_EQ(LayoutName({6}, {Box{{0}, {1}}, Box{{1}, {3}}, Box{{4}, {2}}}),
            "3 x Shard(0) (uneven)");
}

TEST(LayoutName, CountsChunksThatFormNoGrid) {
  EXPECT_EQ(LayoutName({2, 2}, {Box{{0, 0}, {1, 2}}, Box{{1, 0}, {1, 1}},
                                Box{{1, 1}, {1, 1}}}),
            "3 chunks");
}

}  // namespace
}  // namespace dcp::tools
