// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/strided/strided_piece.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/plan/random.h"
#include "tests/dcp/plan/strided/random_piece.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::testing::HasSubstr;
using testing::PieceElements;
using testing::PlacedElement;
using testing::PlacedPiece;
using testing::RandomPiece;
using testing::StatusIs;

// The most parts that a box on this side may cut a piece into.
size_t MostParts(const StridedPiece& piece, PieceSide side, size_t num_dims) {
  size_t most = 1;
  for (size_t d = 0; d < num_dims; ++d) {
    const auto num_loops = static_cast<size_t>(std::count_if(
        piece.loops.begin(), piece.loops.end(), [&](const StridedLoop& loop) {
          return (side == PieceSide::kSrc ? loop.src_dim : loop.dst_dim) ==
                 static_cast<int>(d);
        }));
    if (num_loops > 0) most *= 2 * num_loops - 1;
  }
  return most;
}

TEST(StridedPiece, ClipLeavesTheElementsInsideTheBox) {
  testing::Random random;
  for (int round = 0; round < 3000; ++round) {
    const PlacedPiece placed = RandomPiece(random, 5);
    const StridedPiece& piece = placed.piece;
    const Dims& src_shape = placed.src_shape;
    const Dims& dst_shape = placed.dst_shape;
    ASSERT_OK(CheckStridedPiece(piece, src_shape, dst_shape));
    const bool is_src = random.Uniform(0, 1) == 0;
    const PieceSide side = is_src ? PieceSide::kSrc : PieceSide::kDst;
    const Dims& shape = is_src ? src_shape : dst_shape;
    const Box box = random.BoxInside(WholeBox(shape));
    std::vector<PlacedElement> found;
    size_t num_parts = 0;
    Clip(piece, side, box, [&](const StridedPiece& part) {
      EXPECT_OK(CheckStridedPiece(part, src_shape, dst_shape));
      for (const PlacedElement& element : PieceElements(part)) {
        found.push_back(element);
      }
      ++num_parts;
    });
    std::vector<PlacedElement> expected;
    for (const PlacedElement& element : PieceElements(piece)) {
      if (testing::IsInside(is_src ? element.src : element.dst, box)) {
        expected.push_back(element);
      }
    }
    std::sort(found.begin(), found.end());
    ASSERT_EQ(found, expected);
    EXPECT_LE(num_parts, MostParts(piece, side, shape.size()));
  }
}

TEST(StridedPiece, BoundsAreTheSmallestBox) {
  testing::Random random;
  for (int round = 0; round < 1000; ++round) {
    const PlacedPiece placed = RandomPiece(random, 4);
    const std::vector<PlacedElement> elements = PieceElements(placed.piece);
    EXPECT_EQ(NumElements(placed.piece), elements.size());
    for (const PieceSide side : {PieceSide::kSrc, PieceSide::kDst}) {
      const Box bounds = FindBounds(placed.piece, side);
      for (size_t d = 0; d < bounds.sizes.size(); ++d) {
        uint64_t low = std::numeric_limits<uint64_t>::max();
        uint64_t high = 0;
        for (const PlacedElement& element : elements) {
          const uint64_t at =
              (side == PieceSide::kSrc ? element.src : element.dst)[d];
          low = std::min(low, at);
          high = std::max(high, at);
        }
        EXPECT_EQ(bounds.offsets[d], static_cast<int64_t>(low));
        EXPECT_EQ(bounds.sizes[d], static_cast<int64_t>(high - low + 1));
      }
    }
  }
}

TEST(StridedPiece, DensePartsAreDenseAndComplete) {
  testing::Random random;
  size_t num_split = 0;
  for (int round = 0; round < 1000; ++round) {
    PlacedPiece placed = RandomPiece(random, 4);
    if (random.Uniform(0, 1) == 0) {
      for (StridedLoop& loop : placed.piece.loops) loop.src_step *= 7;
    }
    std::vector<PlacedElement> found;
    size_t num_parts = 0;
    ForEachDensePart(placed.piece, [&](const StridedPiece& part) {
      std::set<std::vector<uint64_t>> sources;
      for (const PlacedElement& element : PieceElements(part)) {
        found.push_back(element);
        sources.insert(element.src);
      }
      EXPECT_LE(Volume(FindBounds(part, PieceSide::kSrc).sizes),
                static_cast<int64_t>(4 * sources.size()));
      ++num_parts;
    });
    std::sort(found.begin(), found.end());
    ASSERT_EQ(found, PieceElements(placed.piece));
    num_split += num_parts > 1 ? 1 : 0;
  }
  EXPECT_GT(num_split, 100u);
}

// A 6 x 8 matrix with 4 heads, 2 halves and r = 6 rows each in dimension 0.
StridedPiece Rotary() {
  return {.src_base = {0, 0},
          .dst_base = {0, 0},
          .loops = {{.count = 4, .src_dim = 0, .src_step = 12, .dst_step = 12},
                    {.count = 2, .src_dim = 0, .src_step = 6, .dst_step = 1},
                    {.count = 6, .src_dim = 0, .src_step = 1, .dst_step = 2},
                    {.count = 8,
                     .src_dim = 1,
                     .src_step = 1,
                     .dst_dim = 1,
                     .dst_step = 1}}};
}

TEST(StridedPiece, WholeRotaryHeadsStayOnePart) {
  const auto num_parts = [](int64_t first, int64_t count) {
    size_t parts = 0;
    Clip(Rotary(), PieceSide::kDst, {{first, 0}, {count, 8}},
         [&](const StridedPiece&) { ++parts; });
    return parts;
  };
  EXPECT_EQ(num_parts(12, 24), 1u);
  EXPECT_EQ(num_parts(13, 10), 3u);
  EXPECT_EQ(num_parts(5, 38), 5u);
}

TEST(StridedPiece, ZerosHaveNoSource) {
  StridedPiece pad{.src = StridedPiece::kZeros,
                   .src_base = {},
                   .dst_base = {90},
                   .loops = {{.count = 10}}};
  EXPECT_OK(CheckStridedPiece(pad, {}, {100}));
  pad.loops[0].src_dim = 0;
  EXPECT_THAT(CheckStridedPiece(pad, {100}, {100}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("dimension 0 of a source of 0 dimensions")));
}

struct Broken {
  const char* what;
  StridedPiece piece;
  const char* message;
};

std::vector<Broken> BrokenPieces() {
  const uint64_t huge = std::numeric_limits<uint64_t>::max() / 2;
  std::vector<Broken> all;
  const auto add = [&](const char* what, const char* message,
                       const auto& change) {
    all.push_back({what, Rotary(), message});
    change(all.back().piece);
  };
  add("too few indices", "1 indices for a destination of 2",
      [](StridedPiece& p) { p.dst_base.pop_back(); });
  add("a dimension that is not there", "walks in dimension 2 of a source",
      [](StridedPiece& p) { p.loops[1].src_dim = 2; });
  add("no dimension of the destination", "walks in dimension -1 of a dest",
      [](StridedPiece& p) { p.loops[1].dst_dim = -1; });
  add("two loops with one step", "loop 1 steps 2 in dimension 0 of the dest",
      [](StridedPiece& p) { p.loops[1].dst_step = 2; });
  add("a step of 0", "loop 3 steps 0 in dimension 1 of the source",
      [](StridedPiece& p) { p.loops[3].src_step = 0; });
  add("one row too many", "from 1 over 47 more in dimension 0 of the dest",
      [](StridedPiece& p) { p.dst_base[0] = 1; });
  add("a huge count", "in dimension 1 of the source",
      [=](StridedPiece& p) { p.loops[3].count = huge; });
  add("a product beyond 64 bits", "in dimension 0 of the destination",
      [=](StridedPiece& p) { p.loops[0].dst_step = huge; });
  add("a huge base", "in dimension 1 of the destination", [](StridedPiece& p) {
    p.dst_base[1] = std::numeric_limits<uint64_t>::max();
  });
  add("too many loops", "has 9 loops, which exceeds 8",
      [](StridedPiece& p) { p.loops.resize(9, {.src_dim = 0}); });
  return all;
}

TEST(StridedPiece, RefusesInvalidPieces) {
  EXPECT_OK(CheckStridedPiece(Rotary(), {48, 8}, {48, 8}));
  for (const Broken& broken : BrokenPieces()) {
    SCOPED_TRACE(broken.what);
    EXPECT_THAT(CheckStridedPiece(broken.piece, {48, 8}, {48, 8}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(broken.message)));
  }
}

TEST(StridedPiece, WithoutStepsIsEmpty) {
  StridedPiece piece = Rotary();
  piece.loops[2].count = 0;
  EXPECT_OK(CheckStridedPiece(piece, {48, 8}, {48, 8}));
  EXPECT_EQ(NumElements(piece), 0u);
  Clip(piece, PieceSide::kDst, WholeBox({48, 8}),
       [](const StridedPiece&) { FAIL() << "nothing is inside"; });
}

}  // namespace
}  // namespace dcp
