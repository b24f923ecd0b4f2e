// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/flat_boxes.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

using testing::IsEmpty;

// The row-major positions of a box's elements, one by one.
std::vector<int64_t> BoxPositions(const Dims& shape, const Box& box) {
  const Dims strides = RowMajorStrides(shape);
  std::vector<int64_t> positions;
  Dims index(shape.size(), 0);
  for (int64_t i = 0; i < Volume(box.sizes); ++i) {
    int64_t rest = i;
    int64_t position = 0;
    for (size_t d = shape.size(); d-- > 0;) {
      position += (box.offsets[d] + rest % box.sizes[d]) * strides[d];
      rest /= box.sizes[d];
    }
    positions.push_back(position);
  }
  return positions;
}

TEST(FlatBoxes, CoverEveryRangeOfSmallShapesInOrder) {
  const std::vector<Dims> shapes = {{3, 4, 5}, {1, 1, 7}, {6},         {},
                                    {2, 3, 1}, {1, 4},    {2, 1, 1, 2}};
  for (const Dims& shape : shapes) {
    const int64_t volume = Volume(shape);
    for (int64_t begin = 0; begin <= volume; ++begin) {
      for (int64_t end = begin; end <= volume; ++end) {
        SCOPED_TRACE(testing::Message() << ShapeToString(shape) << " [" << begin
                                        << ", " << end << ")");
        std::vector<int64_t> found;
        const std::vector<FlatBox> boxes = FlatBoxes(shape, begin, end);
        for (const FlatBox& piece : boxes) {
          EXPECT_EQ(piece.offset, static_cast<int64_t>(found.size()));
          for (const int64_t at : BoxPositions(shape, piece.box)) {
            found.push_back(at);
          }
        }
        std::vector<int64_t> expected;
        for (int64_t at = begin; at < end; ++at) expected.push_back(at);
        EXPECT_EQ(found, expected);
        EXPECT_LE(boxes.size(), shape.empty() ? 1 : 2 * shape.size() - 1);
      }
    }
  }
}

TEST(FlatBoxes, WholeRowsAreOneBox) {
  EXPECT_EQ(FlatBoxes({3, 4}, 4, 12),
            (std::vector<FlatBox>{{.box = {{1, 0}, {2, 4}}, .offset = 0}}));
}

TEST(FlatBoxes, APartOfTwoRowsIsTwoBoxes) {
  EXPECT_EQ(FlatBoxes({3, 4}, 3, 6),
            (std::vector<FlatBox>{{.box = {{0, 3}, {1, 1}}, .offset = 0},
                                  {.box = {{1, 0}, {1, 2}}, .offset = 1}}));
}

TEST(FlatBoxes, AnEmptyTensorHasNone) {
  EXPECT_THAT(FlatBoxes({2, 0, 3}, 0, 0), IsEmpty());
}

}  // namespace
}  // namespace dcp
