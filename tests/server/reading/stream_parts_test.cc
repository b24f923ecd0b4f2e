// SPDX-License-Identifier: Apache-2.0

#include "server/reading/stream_parts.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace dcp::server {
namespace {

StreamPart MakePart(const Box& box, DType dtype) {
  StreamPart part{.name = "w", .dtype = dtype, .box = box};
  part.num_bytes =
      static_cast<uint64_t>(Volume(box.sizes)) * ElementSize(dtype);
  return part;
}

// All windows of a part, in order. Checks that they are consecutive, not too
// large, and at the same place as their elements.
std::vector<PartWindow> AllWindows(const Dims& shape, const StreamPart& part) {
  std::vector<PartWindow> windows;
  uint64_t offset = 0;
  const Dims strides = RowMajorStrides(part.box.sizes);
  while (offset < part.num_bytes) {
    const PartWindow window = WindowAt(shape, part, offset);
    EXPECT_EQ(window.begin, offset);
    EXPECT_GT(window.num_bytes, 0u);
    EXPECT_LE(window.num_bytes, kWindowBytes);
    EXPECT_TRUE(Contains(part.box, window.box)) << ToString(window.box);
    EXPECT_EQ(static_cast<uint64_t>(Volume(window.box.sizes)) *
                  ElementSize(part.dtype),
              window.num_bytes);
    int64_t first = 0;  // index of an element in the part
    for (size_t d = 0; d < strides.size(); ++d) {
      first += (window.box.offsets[d] - part.box.offsets[d]) * strides[d];
    }
    EXPECT_EQ(static_cast<uint64_t>(first) * ElementSize(part.dtype), offset);
    // The last byte is in the same window.
    EXPECT_EQ(WindowAt(shape, part, offset + window.num_bytes - 1).begin,
              offset);
    offset += window.num_bytes;
    windows.push_back(window);
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_EQ(offset, part.num_bytes);
  return windows;
}

TEST(PartWindows, TileAnyPart) {
  struct Case {
    Dims shape;
    Box box;
    DType dtype;
    size_t num_windows;
  };
  const int64_t k = 1024;
  for (const Case& c : std::vector<Case>{
           {{}, {}, DType::kFloat32, 1},
           {{3}, {{1}, {2}}, DType::kInt8, 1},
           {{4 * k * k}, {{0}, {4 * k * k}}, DType::kUInt8, 1},
           {{4 * k * k + 1}, {{0}, {4 * k * k + 1}}, DType::kUInt8, 2},
           {{8 * k, 4 * k}, {{0, 0}, {8 * k, 4 * k}}, DType::kFloat32, 32},
           // One row is larger than a window.
           {{3, 5 * k * k}, {{0, 0}, {3, 5 * k * k}}, DType::kUInt8, 6},
           {{2, 3, 9 * k * k},
            {{1, 1, 5}, {1, 2, 9 * k * k - 5}},
            DType::kUInt8,
            6},
       }) {
    EXPECT_EQ(AllWindows(c.shape, MakePart(c.box, c.dtype)).size(),
              c.num_windows)
        << ShapeToString(c.shape) << " " << ToString(c.box);
  }
}

TEST(PartWindows, TileRandomParts) {
  std::mt19937_64 random(17);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(absl::StrCat("seed 17, round ", round));
    Dims shape;
    Box box;
    const int64_t num_dims = 1 + below(4);
    for (int64_t d = 0; d < num_dims; ++d) {
      shape.push_back(1 + below(num_dims == 1 ? 40'000'000 : 400));
      box.offsets.push_back(below(shape.back()));
      box.sizes.push_back(1 + below(shape.back() - box.offsets.back()));
    }
    if (Volume(box.sizes) > 200'000'000) continue;
    AllWindows(shape, MakePart(box, round % 2 == 0 ? DType::kFloat32
                                                   : DType::kComplex128));
    if (HasFailure()) return;
  }
}

// Parts that several ranks need are read in the same windows.
TEST(PartWindows, OverlappingPartsShareWindows) {
  const Dims shape = {10'000, 1024};
  const auto whole =
      AllWindows(shape, MakePart(WholeBox(shape), DType::kFloat32));
  const auto half =
      AllWindows(shape, MakePart({{3'000, 0}, {5'000, 1024}}, DType::kFloat32));
  size_t num_common = 0;
  for (const PartWindow& window : half) {
    for (const PartWindow& other : whole) num_common += other.box == window.box;
  }
  EXPECT_GE(num_common, half.size() - 2);
}

TEST(StreamParts, FindThePartWithAByte) {
  StreamParts parts;
  for (const uint64_t size : {0, 3, 0, 0, 5, 0}) {
    StreamPart part;
    part.begin = parts.num_bytes;
    part.num_bytes = size;
    parts.num_bytes += size;
    parts.parts.push_back(part);
  }
  EXPECT_EQ(parts.PartAt(0), 1u);
  EXPECT_EQ(parts.PartAt(2), 1u);
  EXPECT_EQ(parts.PartAt(3), 4u);
  EXPECT_EQ(parts.PartAt(7), 4u);
}

}  // namespace
}  // namespace dcp::server
