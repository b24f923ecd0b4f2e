// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/strided/composition.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/plan/random.h"
#include "tests/dcp/plan/strided/random_piece.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using testing::PieceElements;
using testing::PlacedElement;
using testing::PlacedPiece;
using testing::RandomPiece;
using ::testing::SizeIs;

// Far more than a small piece needs.
constexpr uint64_t kMaxSteps = 100000;

// The pairs of elements that meet, found by trying all pairs.
std::vector<PlacedElement> Pairs(const StridedPiece& first,
                                 const StridedPiece& second, PieceSide side) {
  std::vector<PlacedElement> pairs;
  for (const PlacedElement& a : PieceElements(first)) {
    for (const PlacedElement& b : PieceElements(second)) {
      if (a.dst == (side == PieceSide::kSrc ? b.src : b.dst)) {
        pairs.push_back(
            {.dst = side == PieceSide::kSrc ? b.dst : b.src, .src = a.src});
      }
    }
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

std::vector<StridedPiece> Composed(const StridedPiece& first,
                                   const StridedPiece& second, PieceSide side) {
  std::vector<StridedPiece> pieces;
  uint64_t max_steps = kMaxSteps;
  EXPECT_TRUE(
      Compose(first, second, side, max_steps,
              [&](const StridedPiece& piece) { pieces.push_back(piece); }));
  return pieces;
}

std::vector<PlacedElement> ElementsOfAll(
    const std::vector<StridedPiece>& pieces) {
  std::vector<PlacedElement> elements;
  for (StridedPiece piece : pieces) {
    // Loops with no step on either side repeat a pair.
    for (StridedLoop& loop : piece.loops) {
      if (loop.dst_dim < 0) {
        EXPECT_EQ(loop.dst_step, 0U);
        loop.dst_dim = 0;
        if (piece.dst_base.empty()) piece.dst_base.push_back(0);
      }
    }
    const std::vector<PlacedElement> more = PieceElements(piece);
    elements.insert(elements.end(), more.begin(), more.end());
  }
  std::sort(elements.begin(), elements.end());
  return elements;
}

TEST(Composition, EqualsApplyingBothPieces) {
  testing::Random random;
  int num_met = 0;
  for (int round = 0; round < 4000; ++round) {
    const PlacedPiece first = RandomPiece(random, 4);
    const PlacedPiece second = RandomPiece(random, 4);
    const PieceSide side =
        random.Uniform(0, 1) == 0 ? PieceSide::kSrc : PieceSide::kDst;
    const Dims& middle =
        side == PieceSide::kSrc ? second.src_shape : second.dst_shape;
    if (first.dst_shape.size() != middle.size()) continue;
    if (side == PieceSide::kDst && second.src_shape.empty()) continue;
    const std::vector<PlacedElement> expected =
        Pairs(first.piece, second.piece, side);
    const std::vector<StridedPiece> pieces =
        Composed(first.piece, second.piece, side);
    ASSERT_EQ(ElementsOfAll(pieces), expected);
    if (side == PieceSide::kSrc) {
      for (const StridedPiece& piece : pieces) {
        EXPECT_OK(CheckStridedPiece(piece, first.src_shape, second.dst_shape));
      }
    }
    num_met += expected.empty() ? 0 : 1;
  }
  EXPECT_GT(num_met, 300);
}

// A row of `count` elements that are made in groups, where the index in a group
// is the slow one on the other side.
StridedPiece Turned(uint64_t count, uint64_t group) {
  StridedPiece piece;
  piece.src_base = {0};
  piece.dst_base = {0};
  piece.loops = {{.count = count / group,
                  .src_dim = 0,
                  .src_step = 1,
                  .dst_dim = 0,
                  .dst_step = group},
                 {.count = group,
                  .src_dim = 0,
                  .src_step = count / group,
                  .dst_dim = 0,
                  .dst_step = 1}};
  return piece;
}

TEST(Composition, DigitsThatDivideEachOtherGiveOnePiece) {
  EXPECT_THAT(
      Composed(Turned(1 << 20, 16), Turned(1 << 20, 64), PieceSide::kSrc),
      SizeIs(1));
  // There and back: one loop again, or two that continue each other.
  const std::vector<StridedPiece> back =
      Composed(Turned(1 << 20, 16), Turned(1 << 20, 1 << 16), PieceSide::kSrc);
  ASSERT_THAT(back, SizeIs(1));
  for (const StridedLoop& loop : back[0].loops) {
    EXPECT_EQ(loop.src_step, loop.dst_step);
  }
}

TEST(Composition, EndsWhenTheStepsAreUsedUp) {
  // Steps of 16 and of 12 do not divide each other.
  const StridedPiece first = Turned(48 * 1000, 16);
  const StridedPiece second = Turned(48 * 1000, 4000);
  uint64_t max_steps = 100;
  EXPECT_FALSE(Compose(first, second, PieceSide::kSrc, max_steps,
                       [](const StridedPiece&) {}));
  EXPECT_EQ(max_steps, 0U);
}

TEST(Composition, ScalarsMeet) {
  EXPECT_THAT(Composed(StridedPiece(), StridedPiece(), PieceSide::kSrc),
              SizeIs(1));
}

}  // namespace
}  // namespace dcp
