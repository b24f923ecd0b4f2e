// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/chunk_index.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/plan/random.h"
#include "tests/testing/status_matchers.h"

namespace {

uint64_t num_allocations = 0;

}  // namespace

// Counts this test's allocations.
void* operator new(size_t size) {
  ++num_allocations;
  void* const memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}
// The buffers in std::stable_sort, which are freed as others are.
void* operator new(size_t size, const std::nothrow_t& /*tag*/) noexcept {
  ++num_allocations;
  return std::malloc(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept {
  std::free(memory);
}

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

using ::dcp::testing::kDataLoss;

// Marks the elements in `box` and returns how many were marked already.
int64_t Mark(const Dims& shape, const Box& box, std::vector<bool>& marks) {
  const Dims strides = RowMajorStrides(shape);
  int64_t num_twice = 0;
  for (int64_t i = 0; i < Volume(box.sizes); ++i) {
    int64_t rest = i;
    int64_t element = 0;
    for (size_t d = box.sizes.size(); d-- > 0;) {
      element += (box.offsets[d] + rest % box.sizes[d]) * strides[d];
      rest /= box.sizes[d];
    }
    num_twice += marks[static_cast<size_t>(element)];
    marks[static_cast<size_t>(element)] = true;
  }
  return num_twice;
}

// A conversion builds a tensor's index again for every file that it writes.
TEST(ChunkIndex, SlicesInOrderNeedNoAllocation) {
  std::vector<Box> chunks;
  for (int64_t i = 0; i < 1000; ++i) {
    chunks.push_back({.offsets = {0, 3 * i}, .sizes = {5, 3}});
  }
  chunks.push_back({.offsets = {0, 3000}, .sizes = {5, 0}});
  const Box wanted{.offsets = {1, 2998}, .sizes = {2, 2}};
  const uint64_t num_before = num_allocations;
  const ChunkIndex index(chunks);
  std::optional<size_t> found;
  index.ForEachOverlap(wanted,
                       [&](size_t chunk, const Box&) { found = chunk; });
  EXPECT_EQ(num_allocations, num_before);
  EXPECT_EQ(found, 999u);
}

TEST(ChunkIndex, FindsTheSameAsComparingAllPairs) {
  testing::Random random;
  for (int round = 0; round < 300; ++round) {
    const Dims shape = random.Shape(4, 12);
    std::vector<Box> chunks = random.Tiling(shape, random.Uniform(0, 40));
    // The index does not need them disjoint.
    if (round % 3 == 0) chunks.push_back(random.BoxInside(WholeBox(shape)));
    const ChunkIndex index(chunks);
    const Box wanted = random.BoxInside(WholeBox(shape));
    std::vector<std::pair<size_t, Box>> found;
    index.ForEachOverlap(wanted, [&](size_t chunk, const Box& overlap) {
      found.emplace_back(chunk, overlap);
    });
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::pair<size_t, Box>> expected;
    for (size_t i = 0; i < chunks.size(); ++i) {
      const std::optional<Box> overlap = Intersect(chunks[i], wanted);
      if (overlap.has_value()) expected.emplace_back(i, *overlap);
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(ChunkIndex, VisitsInOrderOfOffsets) {
  const std::vector<Box> chunks = {{.offsets = {4}, .sizes = {2}},
                                   {.offsets = {0}, .sizes = {2}},
                                   {.offsets = {2}, .sizes = {2}}};
  std::vector<size_t> visited;
  ChunkIndex(chunks).ForEachOverlap(
      WholeBox({6}),
      [&](size_t chunk, const Box&) { visited.push_back(chunk); });
  EXPECT_EQ(visited, (std::vector<size_t>{1, 2, 0}));
}

TEST(ChunkIndex, FindsNothingWithoutChunksOrElements) {
  const auto fail = [](size_t, const Box&) { ADD_FAILURE(); };
  ChunkIndex({}).ForEachOverlap(WholeBox({6}), fail);
  const std::vector<Box> empty = {{.offsets = {3}, .sizes = {0}}};
  ChunkIndex(empty).ForEachOverlap(WholeBox({6}), fail);
  const std::vector<Box> whole = {WholeBox({6})};
  ChunkIndex(whole).ForEachOverlap({.offsets = {3}, .sizes = {0}}, fail);
}

TEST(Coverage, AgreesWithMarkingElements) {
  testing::Random random;
  int num_ok = 0;
  for (int round = 0; round < 400; ++round) {
    const Dims shape = random.Shape(4, 8);
    std::vector<Box> chunks = random.Tiling(shape, random.Uniform(0, 60));
    if (round % 4 == 1) chunks.pop_back();
    if (round % 4 == 2) chunks.push_back(random.BoxInside(WholeBox(shape)));
    if (round % 4 == 3) {
      chunks.back() = random.BoxInside(WholeBox(shape));
    }
    std::vector<bool> marks(static_cast<size_t>(Volume(shape)));
    int64_t num_twice = 0;
    for (const Box& chunk : chunks) num_twice += Mark(shape, chunk, marks);
    const auto num_gaps = std::count(marks.begin(), marks.end(), false);
    const absl::Status status = CheckCoverage(shape, chunks);
    if (num_twice > 0) {
      EXPECT_THAT(status, StatusIs(kDataLoss, HasSubstr("overlap")));
    } else if (num_gaps > 0) {
      EXPECT_THAT(status, StatusIs(kDataLoss, HasSubstr("none of its")));
    } else {
      EXPECT_OK(status);
      ++num_ok;
    }
  }
  EXPECT_GE(num_ok, 100);
}

TEST(Coverage, NamesTheFaultyChunks) {
  EXPECT_THAT(CheckCoverage({4}, {{.offsets = {0}, .sizes = {3}}}),
              StatusIs(kDataLoss,
                       "1 of 4 elements of shape [4] are in none of its 1 "
                       "chunks"));
  EXPECT_THAT(CheckCoverage({4}, {{.offsets = {0}, .sizes = {3}},
                                  {.offsets = {2}, .sizes = {2}}}),
              StatusIs(kDataLoss, "chunks 0 [0:3] and 1 [2:4] overlap"));
  EXPECT_THAT(CheckCoverage({4}, {{.offsets = {0}, .sizes = {5}}}),
              StatusIs(kDataLoss, "chunk 0 [0:5] is not inside shape [4]"));
}

TEST(Coverage, AcceptsScalarsAndEmptyTensors) {
  EXPECT_OK(CheckCoverage({}, {Box{}}));
  EXPECT_THAT(CheckCoverage({}, {}), StatusIs(kDataLoss));
  EXPECT_THAT(CheckCoverage({}, {Box{}, Box{}}), StatusIs(kDataLoss));
  EXPECT_OK(CheckCoverage({0, 4}, {}));
  EXPECT_OK(CheckCoverage({0, 4}, {WholeBox({0, 4})}));
  // Shards on ranks without elements lie at the end, several at one place.
  const Box empty{.offsets = {4}, .sizes = {0}};
  EXPECT_OK(CheckCoverage({4}, {WholeBox({4}), empty, empty}));
}

TEST(Coverage, RefusesHostileNumbers) {
  const int64_t max = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(CheckCoverage({max, 2}, {}), StatusIs(kDataLoss));
  EXPECT_THAT(CheckCoverage({-1}, {}), StatusIs(kDataLoss));
  EXPECT_THAT(CheckCoverage({4}, {{.offsets = {max}, .sizes = {max}}}),
              StatusIs(kDataLoss, HasSubstr("not inside")));
  EXPECT_THAT(CheckCoverage({4, 4}, {{.offsets = {0, 0}, .sizes = {-1, 0}}}),
              StatusIs(kDataLoss, HasSubstr("not inside")));
  EXPECT_THAT(CheckCoverage({4, 4}, {WholeBox({4})}),
              StatusIs(kDataLoss, HasSubstr("not inside")));
  // So many times the whole tensor that the sum overflows.
  const std::vector<Box> many(5, WholeBox({max}));
  EXPECT_THAT(CheckCoverage({max}, many),
              StatusIs(kDataLoss, HasSubstr("overlap")));
}

}  // namespace
}  // namespace dcp
