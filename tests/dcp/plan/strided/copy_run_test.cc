// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/strided/copy_run.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "dcp/tensor/box.h"
#include "gtest/gtest.h"
#include "tests/dcp/plan/random.h"

namespace dcp {
namespace {

// The source of each destination byte: (destination byte, source byte), sorted.
using Copies = std::vector<std::pair<uint64_t, uint64_t>>;

// The coordinates of element `index` in the box's row-major image.
Dims Coordinates(const Box& box, uint64_t index) {
  Dims result = box.offsets;
  for (size_t d = box.sizes.size(); d-- > 0;) {
    result[d] += static_cast<int64_t>(index % ToUnsigned(box.sizes[d]));
    index /= ToUnsigned(box.sizes[d]);
  }
  return result;
}

bool IsInside(const Dims& coordinates, const Box& box) {
  return Contains(
      box, {.offsets = coordinates, .sizes = Dims(coordinates.size(), 1)});
}

Copies ElementByElement(const Window& window, const ChunkView& chunk,
                        const Box& overlap) {
  Copies copies;
  for (uint64_t i = 0; i < window.num_elements; ++i) {
    const Dims at = Coordinates(window.box, window.first + i);
    if (!IsInside(at, overlap)) continue;
    uint64_t element = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      element += ToUnsigned((at[d] - chunk.box.offsets[d]) * chunk.strides[d]);
    }
    copies.emplace_back(window.dst + i * window.element_bytes,
                        chunk.offset + element * chunk.element_bytes);
  }
  return copies;
}

Copies Expand(const std::vector<CopyRun>& runs) {
  Copies copies;
  for (const CopyRun& run : runs) {
    for (uint64_t u = 0; u < run.count; ++u) {
      for (uint64_t e = 0; e < run.unit; ++e) {
        copies.emplace_back(
            run.dst + u * run.dst_stride + e * run.dst_element_bytes,
            run.src + u * run.src_stride + e * run.src_element_bytes);
      }
    }
  }
  std::sort(copies.begin(), copies.end());
  return copies;
}

// Chunks that are row-major, have their dimensions in another order, are
// padded, or expanded.
Dims RandomStrides(testing::Random& random, const Dims& sizes) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (random.Uniform(0, 2) == 0) {
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<size_t>(random.Uniform(
                                  0, static_cast<int64_t>(i) - 1))]);
    }
  }
  Dims strides(sizes.size(), 0);
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t d = order[i];
    if (random.Uniform(0, 7) == 0) continue;  // stays 0
    strides[d] = stride;
    stride *= sizes[d];
    if (random.Uniform(0, 5) == 0) stride += random.Uniform(0, 3);
  }
  return strides;
}

struct Case {
  Window window;
  ChunkView chunk;
  Box overlap;
};

Case RandomCase(testing::Random& random) {
  while (true) {
    const Box whole = WholeBox(random.Shape(4, 6));
    Case c;
    c.window.box = random.BoxInside(whole);
    c.chunk.box = random.BoxInside(whole);
    const std::optional<Box> overlap = Intersect(c.window.box, c.chunk.box);
    if (!overlap.has_value()) continue;
    c.overlap = *overlap;
    const int64_t volume = Volume(c.window.box.sizes);
    const int64_t first = random.Uniform(0, volume - 1);
    c.window.first = ToUnsigned(first);
    c.window.num_elements = ToUnsigned(random.Uniform(0, volume - first));
    if (random.Uniform(0, 3) == 0) {
      c.window.first = 0;
      c.window.num_elements = ToUnsigned(volume);
    }
    c.window.dst = ToUnsigned(random.Uniform(0, 100));
    c.window.tag = 5;
    c.window.element_bytes = 1u << random.Uniform(0, 4);
    c.chunk.strides = RandomStrides(random, c.chunk.box.sizes);
    c.chunk.file = 3;
    c.chunk.offset = ToUnsigned(random.Uniform(0, 100));
    c.chunk.element_bytes = 1u << random.Uniform(0, 4);
    return c;
  }
}

std::vector<CopyRun> MakeCopyRuns(const Case& c) {
  std::vector<CopyRun> runs;
  AppendCopyRuns(c.window, c.chunk, c.overlap, runs);
  return runs;
}

// Copies a whole chunk with these strides into a whole window.
std::vector<CopyRun> MakeWholeRuns(const Dims& shape, const Dims& strides) {
  const Box whole = WholeBox(shape);
  return MakeCopyRuns(
      {.window = {.box = whole,
                  .num_elements = ToUnsigned(Volume(shape)),
                  .element_bytes = 4},
       .chunk = {.box = whole, .strides = strides, .element_bytes = 4},
       .overlap = whole});
}

TEST(CopyRun, CopiesTheSameAsAnElementLoop) {
  testing::Random random;
  for (int round = 0; round < 3000; ++round) {
    const Case c = RandomCase(random);
    const std::vector<CopyRun> runs = MakeCopyRuns(c);
    ASSERT_EQ(Expand(runs), ElementByElement(c.window, c.chunk, c.overlap));
    for (const CopyRun& run : runs) {
      EXPECT_EQ(run.file, 3u);
      EXPECT_EQ(run.tag, 5u);
    }
  }
}

TEST(CopyRun, ContiguousOnBothSidesIsOneUnit) {
  const std::vector<CopyRun> runs = MakeWholeRuns({2, 3, 4}, {12, 4, 1});
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].unit, 24u);
  EXPECT_EQ(runs[0].count, 1u);
}

TEST(CopyRun, AWindowThatCutsRowsOfAContiguousChunkIsOneUnit) {
  const Box whole = WholeBox({4, 5, 6});
  std::vector<CopyRun> runs;
  AppendCopyRuns({.box = whole, .first = 7, .num_elements = 100},
                 {.box = whole, .strides = {30, 6, 1}}, whole, runs);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].src, 7u);
  EXPECT_EQ(runs[0].unit, 100u);
}

TEST(CopyRun, RowsOfAWiderChunkAreUnits) {
  const Box left{.offsets = {0, 0}, .sizes = {10, 3}};
  std::vector<CopyRun> runs;
  AppendCopyRuns(
      {.box = left, .num_elements = 30, .element_bytes = 4},
      {.box = WholeBox({10, 8}), .strides = {8, 1}, .element_bytes = 2}, left,
      runs);
  EXPECT_EQ(runs, (std::vector<CopyRun>{{.unit = 3,
                                         .count = 10,
                                         .src_stride = 16,
                                         .dst_stride = 12,
                                         .src_element_bytes = 2,
                                         .dst_element_bytes = 4}}));
}

TEST(CopyRun, TransposedChunkCountsAlongItsLongerDimension) {
  EXPECT_EQ(MakeWholeRuns({3, 100}, {1, 3}).size(), 3u);
  EXPECT_EQ(MakeWholeRuns({100, 3}, {1, 100}).size(), 3u);
}

TEST(CopyRun, ExpandedElementIsOneRun) {
  const std::vector<CopyRun> runs = MakeWholeRuns({3, 100}, {0, 0});
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].count, 300u);
  EXPECT_EQ(runs[0].src_stride, 0u);
  EXPECT_EQ(SourceExtent(runs[0]), 4u);
}

TEST(CopyRun, ScalarIsOneElement) {
  const std::vector<CopyRun> runs = MakeWholeRuns({}, {});
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].unit, 1u);
  EXPECT_EQ(runs[0].count, 1u);
}

TEST(CopyRun, EmptyWindowHasNoRuns) {
  EXPECT_TRUE(MakeWholeRuns({0, 4}, {4, 1}).empty());
  EXPECT_EQ(Volume(WindowBounds(WholeBox({3, 4}), 5, 0).sizes), 0);
}

TEST(CopyRun, RunsStayFewWithManyDimensions) {
  // One element with 64 dimensions, and 2 along the first and the last.
  Dims shape(64, 1);
  EXPECT_EQ(MakeWholeRuns(shape, Dims(64, 1)).size(), 1u);
  shape.front() = shape.back() = 2;
  Dims strides(64, 0);
  strides.front() = 7;
  strides.back() = 1;
  EXPECT_EQ(MakeWholeRuns(shape, strides).size(), 1u);
}

TEST(CopyRun, WindowBoundsAreTheSmallestBox) {
  testing::Random random;
  for (int round = 0; round < 1000; ++round) {
    const Box box = random.BoxInside(WholeBox(random.Shape(4, 5)));
    const int64_t volume = Volume(box.sizes);
    const int64_t first = random.Uniform(0, volume - 1);
    const int64_t count = random.Uniform(1, volume - first);
    Dims low = Coordinates(box, ToUnsigned(first));
    Dims high = low;
    for (int64_t i = first; i < first + count; ++i) {
      const Dims at = Coordinates(box, ToUnsigned(i));
      for (size_t d = 0; d < at.size(); ++d) {
        low[d] = std::min(low[d], at[d]);
        high[d] = std::max(high[d], at[d]);
      }
    }
    const Box bounds = WindowBounds(box, ToUnsigned(first), ToUnsigned(count));
    EXPECT_EQ(bounds.offsets, low);
    for (size_t d = 0; d < low.size(); ++d) {
      EXPECT_EQ(bounds.sizes[d], high[d] - low[d] + 1);
    }
  }
}

TEST(CopyRun, SourceExtentReachesTheLastByte) {
  testing::Random random;
  for (int round = 0; round < 500; ++round) {
    for (const CopyRun& run : MakeCopyRuns(RandomCase(random))) {
      uint64_t end = 0;
      for (const auto& [dst, src] : Expand({run})) {
        end = std::max(end, src + run.src_element_bytes);
      }
      EXPECT_EQ(run.src + SourceExtent(run), end);
    }
  }
}

// Applies the run to consecutive windows in the file.
TEST(CopyRun, AppliesEachElementInTheWindowWhereItBegins) {
  testing::Random random;
  for (int round = 0; round < 500; ++round) {
    const std::vector<CopyRun> runs = MakeCopyRuns(RandomCase(random));
    const auto window_length = ToUnsigned(random.Uniform(1, 60));
    for (const CopyRun& run : runs) {
      const uint64_t file_size = run.src + SourceExtent(run);
      const std::vector<uint8_t> file(file_size);
      Copies copies;
      for (uint64_t begin = 0; begin < file_size; begin += window_length) {
        const size_t before = copies.size();
        const uint64_t length = std::min(window_length, file_size - begin);
        const ByteSpan data = ByteSpan(file).subspan(
            begin, std::min(length + 16, file_size - begin));
        ApplyRun(run, begin, length, data,
                 [&](const uint8_t* src, uint64_t dst, uint64_t count) {
                   ASSERT_GT(count, 0u);
                   const auto offset =
                       begin + static_cast<uint64_t>(src - data.data());
                   for (uint64_t e = 0; e < count; ++e) {
                     copies.emplace_back(dst + e * run.dst_element_bytes,
                                         offset + e * run.src_element_bytes);
                     ASSERT_GE(copies.back().second, begin);
                     ASSERT_LT(copies.back().second, begin + length);
                   }
                 });
        EXPECT_EQ(HasElementIn(run, begin, length), copies.size() > before);
      }
      std::sort(copies.begin(), copies.end());
      EXPECT_EQ(copies, Expand({run}));
    }
  }
}

TEST(CopyRun, LongUnitsAreHandedOverWhole) {
  const CopyRun run{
      .src = 10, .unit = 1000, .src_element_bytes = 4, .dst_element_bytes = 4};
  const std::vector<uint8_t> file(5000);
  std::vector<std::pair<uint64_t, uint64_t>> calls;
  const auto record = [&](const uint8_t*, uint64_t dst, uint64_t count) {
    calls.emplace_back(dst, count);
  };
  ApplyRun(run, 0, 5000, file, record);
  ApplyRun(run, 12, 1000, ByteSpan(file).subspan(12), record);
  // 0 and 1 begin at 10 and 14; 250 is the last to begin before 1012.
  EXPECT_EQ(calls,
            (std::vector<std::pair<uint64_t, uint64_t>>{{0, 1000}, {4, 250}}));
}

}  // namespace
}  // namespace dcp
