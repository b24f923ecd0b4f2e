// SPDX-License-Identifier: Apache-2.0
// Layouts against a model that is an element-wise loop: the indices of each
// rank's elements, in the rank's order.

#include "fsdp/parallel/spmd/layout.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::spmd {
namespace {

using ::testing::ElementsAre;

// The indices that a rank has along the cut dimension: each block in equal
// chunks, the last ones smaller or empty; balanced, the chunks from both ends.
std::vector<int64_t> RankIndices(int64_t length, const Layout& shard,
                                 int64_t ranks, int64_t rank) {
  const int64_t block = length / shard.blocks;
  const int64_t num_chunks = shard.balanced ? 2 * ranks : ranks;
  const int64_t chunk = (block + num_chunks - 1) / num_chunks;
  std::vector<int64_t> found;
  for (int64_t b = 0; b < shard.blocks; ++b) {
    std::vector<int64_t> late;
    for (int64_t i = 0; i < block; ++i) {
      const int64_t owner = i / chunk;
      if (owner == rank) found.push_back(b * block + i);
      if (shard.balanced && owner == num_chunks - 1 - rank) {
        late.push_back(b * block + i);
      }
    }
    found.insert(found.end(), late.begin(), late.end());
  }
  return found;
}

// A rank's elements, counted in row-major order in the whole.
std::vector<int64_t> RankElements(const Sizes& whole, const Layout& shard,
                                  int64_t ranks, int64_t rank) {
  const auto dim = static_cast<size_t>(shard.dim);
  const std::vector<int64_t> indices =
      RankIndices(whole[dim], shard, ranks, rank);
  const int64_t inner = SizesProduct(whole, dim + 1, whole.size());
  std::vector<int64_t> found;
  for (int64_t outer = 0; outer < SizesProduct(whole, 0, dim); ++outer) {
    for (const int64_t index : indices) {
      for (int64_t i = 0; i < inner; ++i) {
        found.push_back((outer * whole[dim] + index) * inner + i);
      }
    }
  }
  return found;
}

std::string Describe(const Sizes& from, const Layout& cut, const Sizes& to,
                     int64_t ranks) {
  return absl::StrCat("[", absl::StrJoin(from, ", "), "] ", to_string(cut),
                      " to [", absl::StrJoin(to, ", "), "] on ", ranks,
                      " ranks");
}

// Every shape with up to `max_ndim` dimensions and so many elements.
std::vector<Sizes> AllShapes(int64_t numel, size_t max_ndim) {
  std::vector<Sizes> shapes;
  if (numel == 1) shapes.push_back({});
  if (max_ndim == 0) return shapes;
  for (int64_t first = 1; first <= numel; ++first) {
    if (numel % first != 0) continue;
    for (Sizes rest : AllShapes(numel / first, max_ndim - 1)) {
      rest.insert(rest.begin(), first);
      shapes.push_back(std::move(rest));
    }
  }
  return shapes;
}

TEST(LayoutTest, PiecesMatchTheModel) {
  for (int64_t ranks = 1; ranks <= 4; ++ranks) {
    for (const int64_t blocks : {1, 2, 3}) {
      for (int64_t block = 0; block <= 13; ++block) {
        for (const bool balanced : {false, true}) {
          const Layout shard = Layout::Shard(0, blocks, balanced);
          const int64_t length = block * blocks;
          int64_t sum = 0;
          for (int64_t rank = 0; rank < ranks; ++rank) {
            std::vector<int64_t> indices;
            for (const Piece& piece : RankPieces(length, shard, ranks, rank)) {
              for (int64_t i = 0; i < piece.length; ++i) {
                indices.push_back(piece.begin + i);
              }
            }
            EXPECT_EQ(indices, RankIndices(length, shard, ranks, rank))
                << length << " " << to_string(shard) << " rank " << rank;
            EXPECT_EQ(PartLength(length, shard, ranks, rank), indices.size());
            sum += PartLength(length, shard, ranks, rank);
          }
          EXPECT_EQ(sum, length) << to_string(shard);
        }
      }
    }
  }
}

// Whether a cut along some dimension of `to`, with any block count, gives each
// rank the same elements as `cut`.
bool SomeCutFits(const Sizes& from, const Layout& cut, const Sizes& to,
                 int64_t ranks) {
  for (size_t d = 0; d < to.size(); ++d) {
    for (int64_t blocks = 1; blocks <= to[d]; ++blocks) {
      if (to[d] % blocks != 0) continue;
      const Layout other =
          Layout::Shard(static_cast<int64_t>(d), blocks, cut.balanced);
      bool fits = true;
      for (int64_t rank = 0; rank < ranks && fits; ++rank) {
        fits = RankElements(from, cut, ranks, rank) ==
               RankElements(to, other, ranks, rank);
      }
      if (fits) return true;
    }
  }
  return false;
}

// Where Reshaped gives a cut, every rank has the same elements under it, in the
// same order. Where it gives none, an evenly cut dimension has none.
void CheckReshape(const Sizes& from, const Layout& cut, const Sizes& to,
                  int64_t ranks, int64_t& num_fitting) {
  const std::optional<Layout> result = Reshaped(from, cut, to, ranks);
  if (!result.has_value()) {
    const int64_t pieces = cut.blocks * ranks * (cut.balanced ? 2 : 1);
    const int64_t length = from[static_cast<size_t>(cut.dim)];
    if (ranks > 1 && length > 0 && length % pieces == 0) {
      EXPECT_FALSE(SomeCutFits(from, cut, to, ranks))
          << Describe(from, cut, to, ranks);
    }
    return;
  }
  ++num_fitting;
  EXPECT_EQ(result->balanced, cut.balanced);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(RankElements(to, *result, ranks, rank),
              RankElements(from, cut, ranks, rank))
        << Describe(from, cut, to, ranks) << " as " << to_string(*result);
  }
}

TEST(LayoutTest, ReshapedCutsHoldTheSameElements) {
  int64_t num_fitting = 0;
  for (const int64_t numel : {5, 6, 8, 12, 16, 18, 24}) {
    const std::vector<Sizes> shapes = AllShapes(numel, 3);
    for (const Sizes& from : shapes) {
      for (const Sizes& to : shapes) {
        for (size_t dim = 0; dim < from.size(); ++dim) {
          for (const int64_t blocks : {1, 2}) {
            if (from[dim] % blocks != 0) continue;
            for (const bool balanced : {false, true}) {
              for (int64_t ranks = 1; ranks <= 4; ++ranks) {
                const Layout cut =
                    Layout::Shard(static_cast<int64_t>(dim), blocks, balanced);
                CheckReshape(from, cut, to, ranks, num_fitting);
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(num_fitting, 1000);
}

TEST(LayoutTest, ReshapesInModels) {
  // Heads are split off, and merged.
  EXPECT_EQ(Reshaped({2, 5, 24}, Layout::Shard(2), {2, 5, 4, 6}, 2),
            Layout::Shard(2));
  EXPECT_EQ(Reshaped({2, 5, 4, 6}, Layout::Shard(2), {2, 5, 24}, 2),
            Layout::Shard(2));
  // A part of one head is not a part of the heads.
  EXPECT_EQ(Reshaped({2, 5, 24}, Layout::Shard(2), {2, 5, 3, 8}, 2),
            std::nullopt);
  // Batch and sequence are merged for the loss, and split again.
  EXPECT_EQ(Reshaped({3, 4, 6}, Layout::Shard(1), {12, 6}, 2),
            Layout::Shard(0, /*blocks=*/3));
  EXPECT_EQ(Reshaped({12, 6}, Layout::Shard(0, 3), {3, 4, 6}, 2),
            Layout::Shard(1));
}

TEST(LayoutTest, PlacementsAndLayouts) {
  EXPECT_EQ(ToLayout(Replicate(), 2), Layout::Same());
  EXPECT_EQ(ToLayout(fsdp::Shard(-1), 3), Layout::Shard(2));
  EXPECT_EQ(ToLayout(fsdp::Partial(), 3), Layout::Partial());
  EXPECT_THROW(ToLayout(fsdp::Shard(3), 3), c10::IndexError);
  EXPECT_THROW(ToLayout(StridedShard(0, 2), 3), c10::ValueError);
  EXPECT_THROW(ToLayout(fsdp::Partial(ReduceOp::kMax), 3), c10::ValueError);
  EXPECT_EQ(NearestPlacement(Layout::Same()), Placement(Replicate()));
  EXPECT_EQ(NearestPlacement(Layout::Shard(1)), Placement(fsdp::Shard(1)));
  EXPECT_EQ(NearestPlacement(Layout::Shard(1, 2)),
            Placement(StridedShard(1, 2)));
  EXPECT_EQ(NearestPlacement(Layout::Partial()), Placement(fsdp::Partial()));
}

TEST(LayoutTest, PrintsLayouts) {
  EXPECT_EQ(to_string(Layout::Same()), "same");
  EXPECT_EQ(to_string(Layout::Partial()), "partial");
  EXPECT_EQ(to_string(Layout::Shard(0, 4)), "shard(0, blocks=4)");
  EXPECT_EQ(to_string(Layout::Shard(1, 1, true)), "shard(1, balanced)");
}

TEST(LayoutTest, ComputesTheSizesOfParts) {
  EXPECT_THAT(PartSizes({10, 3}, Layout::Shard(0), 4, 3), ElementsAre(1, 3));
  EXPECT_THAT(PartSizes({2, 3}, Layout::Shard(0), 3, 2), ElementsAre(0, 3));
  EXPECT_THAT(PartSizes({2, 3}, Layout::Partial(), 3, 2), ElementsAre(2, 3));
  EXPECT_THAT(WithInferred({2, -1, 3}, 12), ElementsAre(2, 2, 3));
  EXPECT_THAT(WithInferred({-1, 0}, 0), ElementsAre(0, 0));
}

}  // namespace
}  // namespace fsdp::spmd
