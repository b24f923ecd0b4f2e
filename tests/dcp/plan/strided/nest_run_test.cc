// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/strided/nest_run.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "dcp/base/limits.h"
#include "dcp/tensor/box.h"
#include "gtest/gtest.h"
#include "tests/dcp/plan/random.h"
#include "tests/dcp/plan/strided/random_piece.h"

namespace dcp {
namespace {

using testing::PieceElements;
using testing::PlacedElement;
using testing::PlacedPiece;

// The source of each destination byte: (destination byte, source byte), sorted.
using Copies = std::vector<std::pair<uint64_t, uint64_t>>;

uint64_t OffsetIn(const std::vector<uint64_t>& index, const Box& box,
                  const Dims& strides) {
  uint64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) {
    offset += (index[d] - ToUnsigned(box.offsets[d])) * ToUnsigned(strides[d]);
  }
  return offset;
}

struct NestCase {
  PlacedPiece placed;
  Window window;
  ChunkView chunk;
};

NestCase RandomNestCase(testing::Random& random, bool repeats) {
  NestCase c;
  c.placed = testing::RandomPiece(random, 4, repeats);
  c.window.box = random.BoxInside(WholeBox(c.placed.dst_shape));
  const int64_t volume = Volume(c.window.box.sizes);
  const int64_t first = random.Uniform(0, volume - 1);
  c.window.first = ToUnsigned(first);
  c.window.num_elements = ToUnsigned(random.Uniform(0, volume - first));
  c.window.dst = ToUnsigned(random.Uniform(0, 100));
  c.window.tag = 5;
  c.window.element_bytes = 1u << random.Uniform(0, 4);
  c.chunk.box = random.BoxInside(WholeBox(c.placed.src_shape));
  c.chunk.strides = RowMajorStrides(c.chunk.box.sizes);
  if (repeats && random.Uniform(0, 5) == 0 && !c.chunk.strides.empty()) {
    c.chunk.strides[0] = random.Uniform(0, 3);  // rows overlap
  }
  c.chunk.file = 3;
  c.chunk.offset = ToUnsigned(random.Uniform(0, 100));
  c.chunk.element_bytes = 1u << random.Uniform(0, 4);
  return c;
}

std::vector<NestRun> MakeNestRuns(const NestCase& c) {
  std::vector<NestRun> runs;
  AppendNestRuns(c.window, c.chunk, c.placed.piece, runs);
  return runs;
}

Copies NestElementByElement(const NestCase& c) {
  const Dims dst_strides = RowMajorStrides(c.window.box.sizes);
  Copies copies;
  for (const PlacedElement& element : PieceElements(c.placed.piece)) {
    if (!testing::IsInside(element.dst, c.window.box) ||
        !testing::IsInside(element.src, c.chunk.box)) {
      continue;
    }
    const uint64_t at = OffsetIn(element.dst, c.window.box, dst_strides);
    if (at < c.window.first || at - c.window.first >= c.window.num_elements) {
      continue;
    }
    copies.emplace_back(
        c.window.dst + (at - c.window.first) * c.window.element_bytes,
        c.chunk.offset + OffsetIn(element.src, c.chunk.box, c.chunk.strides) *
                             c.chunk.element_bytes);
  }
  std::sort(copies.begin(), copies.end());
  return copies;
}

Copies ExpandNest(const NestRun& run) {
  Copies copies = {{run.dst, run.src}};
  std::vector<CopyLoop> loops(run.loops.begin(), run.loops.end());
  loops.push_back({run.unit, run.src_element_bytes, run.dst_element_bytes});
  for (const CopyLoop& loop : loops) {
    Copies stepped;
    for (const auto& [dst, src] : copies) {
      for (uint64_t i = 0; i < loop.count; ++i) {
        stepped.emplace_back(dst + i * loop.dst_stride,
                             src + i * loop.src_stride);
      }
    }
    copies = std::move(stepped);
  }
  return copies;
}

Copies ExpandNest(const std::vector<NestRun>& runs) {
  Copies copies;
  for (const NestRun& run : runs) {
    const Copies more = ExpandNest(run);
    copies.insert(copies.end(), more.begin(), more.end());
  }
  std::sort(copies.begin(), copies.end());
  return copies;
}

TEST(NestRun, CopiesTheSameAsAnElementLoop) {
  testing::Random random;
  for (int round = 0; round < 4000; ++round) {
    const NestCase c = RandomNestCase(random, true);
    const std::vector<NestRun> runs = MakeNestRuns(c);
    ASSERT_EQ(ExpandNest(runs), NestElementByElement(c));
    for (const NestRun& run : runs) {
      EXPECT_EQ(run.file, 3u);
      EXPECT_EQ(run.tag, 5u);
      EXPECT_EQ(NumElements(run), ExpandNest(run).size());
      for (const CopyLoop& loop : run.loops) EXPECT_GT(loop.count, 1u);
    }
  }
}

NestCase WholeCase(const StridedPiece& piece, const Dims& src_shape,
                   const Dims& dst_shape) {
  return {.placed = {piece, src_shape, dst_shape},
          .window = {.box = WholeBox(dst_shape),
                     .num_elements = ToUnsigned(Volume(dst_shape)),
                     .element_bytes = 2},
          .chunk = {.box = WholeBox(src_shape),
                    .strides = RowMajorStrides(src_shape),
                    .element_bytes = 2}};
}

StridedPiece Transposed(uint64_t rows, uint64_t columns) {
  return {.src_base = {0, 0},
          .dst_base = {0, 0},
          .loops = {{.count = rows,
                     .src_dim = 0,
                     .src_step = 1,
                     .dst_dim = 1,
                     .dst_step = 1},
                    {.count = columns,
                     .src_dim = 1,
                     .src_step = 1,
                     .dst_dim = 0,
                     .dst_step = 1}}};
}

TEST(NestRun, ATransposedMatrixIsOneRun) {
  const std::vector<NestRun> runs =
      MakeNestRuns(WholeCase(Transposed(3, 100), {3, 100}, {100, 3}));
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].unit, 1u);
  const absl::InlinedVector<CopyLoop, 3> loops = {{100, 2, 6}, {3, 200, 2}};
  EXPECT_EQ(runs[0].loops, loops);
}

// Axes that continue each other on both sides are one loop, or the unit.
TEST(NestRun, LoopsThatContinueEachOtherAreMerged) {
  const StridedPiece stacked{.src_base = {0, 0},
                             .dst_base = {7, 0, 0},
                             .loops = {{.count = 5,
                                        .src_dim = 0,
                                        .src_step = 4,
                                        .dst_dim = 1,
                                        .dst_step = 4},
                                       {.count = 4,
                                        .src_dim = 0,
                                        .src_step = 1,
                                        .dst_dim = 1,
                                        .dst_step = 1},
                                       {.count = 6,
                                        .src_dim = 1,
                                        .src_step = 1,
                                        .dst_dim = 2,
                                        .dst_step = 1}}};
  const std::vector<NestRun> runs =
      MakeNestRuns(WholeCase(stacked, {20, 6}, {9, 20, 6}));
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].unit, 120u);
  EXPECT_TRUE(runs[0].loops.empty());
  EXPECT_EQ(runs[0].dst, 7u * 120 * 2);
}

TEST(NestRun, RepeatedElementIsOneRun) {
  const StridedPiece zeros{
      .src = StridedPiece::kZeros,
      .src_base = {},
      .dst_base = {1, 0},
      .loops = {{.count = 3, .dst_dim = 0}, {.count = 5, .dst_dim = 1}}};
  const std::vector<NestRun> runs = MakeNestRuns(WholeCase(zeros, {}, {4, 5}));
  ASSERT_EQ(runs.size(), 1u);
  const absl::InlinedVector<CopyLoop, 3> loops = {{15, 0, 2}};
  EXPECT_EQ(runs[0].loops, loops);
}

// A hostile piece: loops of 2 in opposite orders. As CopyRuns, it would have
// half as many runs as elements.
TEST(NestRun, ReversedAxesStayFew) {
  StridedPiece reversed;
  reversed.src_base = {0};
  reversed.dst_base = {0};
  for (uint64_t i = 0; i < kMaxStridedLoops; ++i) {
    reversed.loops.push_back({.count = 2,
                              .src_dim = 0,
                              .src_step = uint64_t{1} << i,
                              .dst_dim = 0,
                              .dst_step = uint64_t{128} >> i});
  }
  for (uint64_t first = 0; first < 256; first += 3) {
    NestCase c = WholeCase(reversed, {256}, {256});
    c.window.first = first;
    c.window.num_elements = std::min<uint64_t>(97, 256 - first);
    const std::vector<NestRun> runs = MakeNestRuns(c);
    EXPECT_LE(runs.size(), 2 * kMaxStridedLoops + 1);
    EXPECT_EQ(ExpandNest(runs), NestElementByElement(c));
  }
}

TEST(NestRun, AnEmptyWindowHasNoRuns) {
  NestCase c = WholeCase({}, {}, {});
  EXPECT_EQ(MakeNestRuns(c).size(), 1u);
  c.window.num_elements = 0;
  EXPECT_TRUE(MakeNestRuns(c).empty());
}

TEST(NestRun, ExtentsHoldAllReadBytesAndSkipGaps) {
  testing::Random random;
  for (int round = 0; round < 1000; ++round) {
    const auto gap_bytes = ToUnsigned(random.Uniform(0, 100));
    for (const NestRun& run : MakeNestRuns(RandomNestCase(random, true))) {
      std::vector<std::pair<uint64_t, uint64_t>> extents;
      ForEachExtent(run, gap_bytes, [&](uint64_t begin, uint64_t end) {
        extents.emplace_back(begin, end);
      });
      EXPECT_EQ(NumExtents(run, gap_bytes), extents.size());
      std::vector<uint64_t> begins;
      for (const auto& [dst, src] : ExpandNest(run)) begins.push_back(src);
      std::sort(begins.begin(), begins.end());
      // Every extent begins and ends with elements and has no longer gap.
      for (const auto& [begin, end] : extents) {
        auto at = std::lower_bound(begins.begin(), begins.end(), begin);
        ASSERT_TRUE(at != begins.end() && *at == begin);
        uint64_t read = begin;
        for (; at != begins.end() && *at < end; ++at) {
          EXPECT_LE(*at, read + gap_bytes);
          read = std::max(read, *at + run.src_element_bytes);
        }
        EXPECT_EQ(read, end);
      }
      for (const uint64_t begin : begins) {
        EXPECT_TRUE(std::any_of(
            extents.begin(), extents.end(), [&](const auto& extent) {
              return extent.first <= begin &&
                     begin + run.src_element_bytes <= extent.second;
            }));
      }
    }
  }
}

TEST(NestRun, ALongerGapIsSkipped) {
  NestRun run;
  run.src_element_bytes = 2;
  run.loops = {{.count = 3, .src_stride = 200, .dst_stride = 2}};
  EXPECT_EQ(NumExtents(run, 198), 1u);
  EXPECT_EQ(NumExtents(run, 197), 3u);
}

// Applies the run to consecutive windows in the file.
TEST(NestRun, AppliesEachElementInTheWindowWhereItBegins) {
  testing::Random random;
  for (int round = 0; round < 500; ++round) {
    const bool repeats = random.Uniform(0, 1) == 0;
    const std::vector<NestRun> runs =
        MakeNestRuns(RandomNestCase(random, repeats));
    const auto length = ToUnsigned(random.Uniform(1, 60));
    for (const NestRun& run : runs) {
      Copies expected = ExpandNest(run);
      const uint64_t last = std::max_element(expected.begin(), expected.end(),
                                             [](const auto& a, const auto& b) {
                                               return a.second < b.second;
                                             })
                                ->second;
      const std::vector<uint8_t> file(last + length + 32);
      Copies copies;
      for (uint64_t begin = 0; begin <= last; begin += length) {
        const ByteSpan data =
            ByteSpan(file).subspan(begin, length + kReadMarginBytes);
        const size_t before = copies.size();
        size_t num_parts = 0;
        ApplyRun(run, begin, length, data,
                 [&](const NestRun& part, const uint8_t* src) {
                   ++num_parts;
                   EXPECT_EQ(part.src,
                             begin + static_cast<uint64_t>(src - data.data()));
                   for (const auto& copy : ExpandNest(part)) {
                     EXPECT_GE(copy.second, begin);
                     EXPECT_LT(copy.second, begin + length);
                     copies.push_back(copy);
                   }
                 });
        EXPECT_EQ(HasElementIn(run, begin, length), copies.size() > before);
        if (!repeats) {
          EXPECT_LE(num_parts, 2 * run.loops.size() + 1);
        }
      }
      std::sort(copies.begin(), copies.end());
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(copies, expected);
    }
  }
}

TEST(NestRun, IsCutByDestination) {
  testing::Random random;
  for (int round = 0; round < 500; ++round) {
    for (const NestRun& run : MakeNestRuns(RandomNestCase(random, true))) {
      const auto begin = run.dst + ToUnsigned(random.Uniform(0, 200));
      const auto end = begin + ToUnsigned(random.Uniform(0, 400));
      Copies copies;
      size_t num_parts = 0;
      CutByDestination(run, begin, end, [&](const NestRun& part) {
        ++num_parts;
        const Copies more = ExpandNest(part);
        copies.insert(copies.end(), more.begin(), more.end());
      });
      std::sort(copies.begin(), copies.end());
      Copies expected = ExpandNest(run);
      std::sort(expected.begin(), expected.end());
      std::erase_if(expected, [&](const auto& copy) {
        return copy.first < begin || copy.first >= end;
      });
      EXPECT_EQ(copies, expected);
      EXPECT_LE(num_parts, 2 * run.loops.size() + 1);
    }
  }
}

// The written elements: (destination byte, element bytes), sorted.
using Written = std::vector<std::pair<uint64_t, std::vector<uint8_t>>>;

// The elements that a run copies from rows collected in memory.
Written FromRows(const NestRun& run, const FileRows& rows,
                 const std::vector<uint8_t>& file) {
  std::vector<uint8_t> memory(rows.count * rows.pitch, 0xAB);
  for (uint64_t i = 0; i < rows.count; ++i) {
    const uint64_t offset = rows.offset + i * rows.stride;
    std::copy_n(&file[offset], rows.length + kReadMarginBytes,
                &memory[i * rows.pitch]);
  }
  Written written;
  ApplyRun(run, rows, memory, [&](const NestRun& part, const uint8_t* src) {
    for (const auto& [dst, at] : ExpandNest(part)) {
      const uint8_t* const element = src + (at - part.src);
      EXPECT_LE(element + run.src_element_bytes, memory.data() + memory.size());
      written.emplace_back(
          dst, std::vector(element, element + run.src_element_bytes));
    }
  });
  std::sort(written.begin(), written.end());
  return written;
}

// Rows with any length that adjoin, and rows like the outermost loop's, with
// unneeded bytes between them.
TEST(NestRun, RowsInMemoryHoldTheElementsThatBeginInThem) {
  testing::Random random;
  uint64_t num_apart = 0;
  for (int round = 0; round < 1000; ++round) {
    for (const NestRun& run : MakeNestRuns(RandomNestCase(random, true))) {
      const Copies copies = ExpandNest(run);
      FileRows rows{.offset = run.src};
      rows.length = ToUnsigned(random.Uniform(1, 60));
      rows.stride = rows.length;
      if (!run.loops.empty() && random.Uniform(0, 1) == 0) {
        rows.stride = std::max(rows.length, run.loops.back().src_stride);
      }
      rows.count = ToUnsigned(random.Uniform(1, 20));
      rows.pitch =
          rows.length + kReadMarginBytes + ToUnsigned(random.Uniform(0, 9));
      const uint64_t end =
          rows.offset + (rows.count - 1) * rows.stride + rows.length;
      std::vector<uint8_t> file(end + kReadMarginBytes);
      for (uint8_t& byte : file) {
        byte = static_cast<uint8_t>(random.Uniform(0, 255));
      }
      Written expected;
      bool all_in_rows = true;
      for (const auto& [dst, src] : copies) {
        if (src >= end) continue;
        all_in_rows =
            all_in_rows && (src - rows.offset) % rows.stride < rows.length;
        expected.emplace_back(
            dst, std::vector(&file[src], &file[src] + run.src_element_bytes));
      }
      if (!all_in_rows) continue;
      num_apart += rows.stride > rows.length ? 1 : 0;
      std::sort(expected.begin(), expected.end());
      ASSERT_EQ(FromRows(run, rows, file), expected);
    }
  }
  EXPECT_GT(num_apart, 0u);
}

TEST(NestRun, AStripeOfATransposedMatrixIsOnePart) {
  NestCase c = WholeCase(Transposed(50, 1000), {50, 1000}, {1000, 50});
  c.window.first = 300 * 50;
  c.window.num_elements = 100 * 50;
  const std::vector<NestRun> runs = MakeNestRuns(c);
  ASSERT_EQ(runs.size(), 1u);
  const FileRows rows{
      .offset = 600, .length = 200, .stride = 2000, .count = 50, .pitch = 256};
  const std::vector<uint8_t> memory(rows.count * rows.pitch);
  std::vector<NestRun> parts;
  ApplyRun(runs[0], rows, memory, [&](const NestRun& part, const uint8_t* src) {
    EXPECT_EQ(src, memory.data());
    parts.push_back(part);
  });
  ASSERT_EQ(parts.size(), 1u);
  const absl::InlinedVector<CopyLoop, 3> loops = {{100, 2, 100}, {50, 256, 2}};
  EXPECT_EQ(parts[0].loops, loops);
}

}  // namespace
}  // namespace dcp
