// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/formats/item_part.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The elements in a chunk with `sizes`, as element numbers from the start of
// the item's tensor, in row-major order.
std::vector<int64_t> ChunkElements(const ChunkLocation& location,
                                   const Dims& sizes, int64_t element_bytes) {
  const Dims strides =
      location.strides.empty() ? RowMajorStrides(sizes) : location.strides;
  std::vector<int64_t> elements;
  const int64_t first =
      static_cast<int64_t>(location.payload_offset) / element_bytes;
  for (int64_t i = 0; i < Volume(sizes); ++i) {
    int64_t rest = i;
    int64_t element = first;
    for (size_t d = sizes.size(); d-- > 0;) {
      element += rest % sizes[d] * strides[d];
      rest /= sizes[d];
    }
    elements.push_back(element);
  }
  return elements;
}

ChunkLocation LocationAt(uint64_t payload_offset, Dims strides = {}) {
  ChunkLocation location;
  location.payload_offset = payload_offset;
  location.strides = std::move(strides);
  return location;
}

TEST(ItemPart, ARangeInOneDimensionBecomesRows) {
  ChunkLocation location = LocationAt(0);
  NarrowToPart({.shape = {1, 1, 12}, .box = {{0, 0, 4}, {1, 1, 6}}}, {2, 3}, 4,
               location);
  EXPECT_EQ(location.payload_offset, 16u);
  EXPECT_THAT(location.strides, IsEmpty());
  EXPECT_THAT(ChunkElements(location, {2, 3}, 4),
              ElementsAre(4, 5, 6, 7, 8, 9));
}

TEST(ItemPart, ARangeOfAStridedTensorKeepsItsStride) {
  ChunkLocation location = LocationAt(8, {24, 2});
  NarrowToPart({.shape = {1, 12}, .box = {{0, 3}, {1, 4}}}, {2, 1, 2}, 8,
               location);
  EXPECT_EQ(location.payload_offset, 8u + 3 * 2 * 8);
  EXPECT_THAT(ChunkElements(location, {2, 1, 2}, 8), ElementsAre(7, 9, 11, 13));
}

TEST(ItemPart, NarrowsToOneLayer) {
  ChunkLocation location = LocationAt(0);
  NarrowToPart({.shape = {3, 2, 2}, .box = {{1, 0, 0}, {1, 2, 2}}}, {2, 2}, 2,
               location);
  EXPECT_EQ(location.payload_offset, 8u);
  EXPECT_THAT(location.strides, IsEmpty());
}

TEST(ItemPart, NarrowsToOneLayerOfATransposedTensor) {
  // The item holds 2 layers with shape (3, 2), in column-major order.
  ChunkLocation location = LocationAt(0, {6, 1, 3});
  NarrowToPart({.shape = {2, 3, 2}, .box = {{1, 0, 0}, {1, 3, 2}}}, {3, 2}, 4,
               location);
  EXPECT_THAT(location.strides, ElementsAre(1, 3));
  EXPECT_THAT(ChunkElements(location, {3, 2}, 4),
              ElementsAre(6, 9, 7, 10, 8, 11));
}

TEST(ItemPart, HandlesOneElementAndNone) {
  ChunkLocation location = LocationAt(100);
  NarrowToPart({.shape = {4}, .box = {{3}, {1}}}, {}, 4, location);
  EXPECT_EQ(location.payload_offset, 112u);
  EXPECT_THAT(location.strides, IsEmpty());
  NarrowToPart({.shape = {2, 0}, .box = {{1, 0}, {1, 0}}}, {0}, 4, location);
  EXPECT_THAT(location.strides, IsEmpty());
}

TEST(ItemPart, TheRecordStays) {
  ChunkLocation location = LocationAt(64);
  location.record = {.offset = 64, .length = 48, .crc = 7};
  NarrowToPart({.shape = {12}, .box = {{6}, {6}}}, {6}, 4, location);
  EXPECT_EQ(location.record.offset, 64u);
  EXPECT_EQ(location.record.length, 48u);
  EXPECT_EQ(location.record.crc, 7u);
}

}  // namespace
}  // namespace dcp
