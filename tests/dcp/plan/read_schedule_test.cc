// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/read_schedule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "dcp/base/limits.h"
#include "dcp/tensor/box.h"
#include "gtest/gtest.h"
#include "tests/dcp/plan/random.h"

namespace dcp {
namespace {

// The run that copies `length` bytes from `src`.
CopyRun Bytes(uint32_t file, uint64_t src, uint64_t length) {
  return {.file = file, .src = src, .unit = length};
}

std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> ScheduledRanges(
    const ReadSchedule& schedule) {
  std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> ranges;
  for (const ReadRange& r : schedule.ranges) {
    ranges.emplace_back(r.file, r.offset, r.length);
  }
  return ranges;
}

using Ranges = std::vector<std::tuple<uint32_t, uint64_t, uint64_t>>;

TEST(ReadSchedule, NoRunsNeedNoReads) {
  EXPECT_TRUE(ScheduleReads({}, {100}).ranges.empty());
  EXPECT_TRUE(ScheduleReads({Bytes(0, 5, 0)}, {100}).ranges.empty());
}

TEST(ReadSchedule, SortsAndMergesCloseRanges) {
  const std::vector<CopyRun> runs = {
      Bytes(1, 0, 10), Bytes(0, 20 + kReadGapBytes, 10),  // just close enough
      Bytes(0, 10, 10),
      Bytes(0, 31 + 2 * kReadGapBytes, 10),  // one byte too far
  };
  const ReadSchedule schedule = ScheduleReads(runs, {kBlockBytes});
  EXPECT_EQ(ScheduledRanges(schedule), (Ranges{{0, 10, 20 + kReadGapBytes},
                                               {0, 31 + 2 * kReadGapBytes, 10},
                                               {1, 0, 10}}));
  EXPECT_EQ(schedule.run_indices, (std::vector<uint32_t>{2, 1, 3, 0}));
}

TEST(ReadSchedule, OverlappingRunsAreReadOnce) {
  const ReadSchedule schedule = ScheduleReads(
      {Bytes(0, 0, 100), Bytes(0, 20, 30), Bytes(0, 0, 100)}, {kBlockBytes});
  EXPECT_EQ(ScheduledRanges(schedule), (Ranges{{0, 0, 100}}));
  EXPECT_EQ(schedule.ranges[0].num_runs, 3u);
}

TEST(ReadSchedule, CutsLongRanges) {
  const ReadSchedule schedule =
      ScheduleReads({Bytes(0, 5, 100), Bytes(0, 40, 1)}, {40});
  EXPECT_EQ(ScheduledRanges(schedule),
            (Ranges{{0, 5, 40}, {0, 45, 40}, {0, 85, 25 - 5}}));
  EXPECT_EQ(schedule.run_indices, (std::vector<uint32_t>{0, 1, 0, 0}));
}

TEST(ReadSchedule, DistantUnitsAreSeparateRanges) {
  CopyRun run = Bytes(0, 0, 10);
  run.count = 3;
  run.src_stride = 11 + kReadGapBytes;
  EXPECT_EQ(ScheduledRanges(ScheduleReads({run}, {kBlockBytes})),
            (Ranges{{0, 0, 10},
                    {0, 11 + kReadGapBytes, 10},
                    {0, 22 + 2 * kReadGapBytes, 10}}));
  run.src_stride = 10 + kReadGapBytes;
  EXPECT_EQ(ScheduledRanges(ScheduleReads({run}, {kBlockBytes})),
            (Ranges{{0, 0, 30 + 2 * kReadGapBytes}}));
}

TEST(ReadSchedule, ARunInManyRangesIsListedOnceInEach) {
  CopyRun far = Bytes(0, 0, 10);
  far.count = 3;
  far.src_stride = 11 + kReadGapBytes;
  // Fills the gaps, so that all is one range.
  const CopyRun all = Bytes(0, 0, 4 * kReadGapBytes);
  const ReadSchedule schedule = ScheduleReads({far, all}, {kBlockBytes});
  ASSERT_EQ(schedule.ranges.size(), 1u);
  EXPECT_EQ(schedule.run_indices, (std::vector<uint32_t>{0, 1}));
}

TEST(ReadSchedule, TheEndOfAnElementIsNotASeparateRange) {
  // Two elements with 16 bytes each; the second begins in the first range.
  const CopyRun run{.src = 0, .unit = 2, .src_element_bytes = 16};
  EXPECT_EQ(ScheduledRanges(ScheduleReads({run}, {20})), (Ranges{{0, 0, 20}}));
}

TEST(ReadSchedule, ReadsLargerGapsWhereRequestsCostMore) {
  CopyRun run = Bytes(0, 0, 10);
  run.count = 2;
  run.src_stride = 10 + kObjectReadGapBytes;
  const ReadLimits limits = {.max_bytes = 2 * kObjectReadGapBytes,
                             .gap_bytes = kObjectReadGapBytes};
  EXPECT_EQ(ScheduledRanges(ScheduleReads({run}, limits)),
            (Ranges{{0, 0, 20 + kObjectReadGapBytes}}));
  EXPECT_EQ(ScheduleReads({run}, {limits.max_bytes}).ranges.size(), 2u);
  const uint64_t next = 10 + kObjectReadGapBytes;
  EXPECT_EQ(ScheduledRanges(
                ScheduleReads({Bytes(0, 0, 10), Bytes(0, next, 10)}, limits)),
            (Ranges{{0, 0, 20 + kObjectReadGapBytes}}));
  EXPECT_EQ(ScheduleReads({Bytes(0, 0, 10), Bytes(0, next + 1, 10)}, limits)
                .ranges.size(),
            2u);
}

CopyRun RandomRun(testing::Random& random) {
  CopyRun run;
  run.file = static_cast<uint32_t>(random.Uniform(0, 2));
  run.src_element_bytes = 1u << random.Uniform(0, 4);
  run.src = ToUnsigned(random.Uniform(0, 1 << random.Uniform(5, 19)));
  run.unit = ToUnsigned(random.Uniform(0, 20));
  run.count = ToUnsigned(random.Uniform(0, 6));
  const int64_t max_stride = int64_t{1} << random.Uniform(0, 13);
  run.src_stride =
      ToUnsigned(random.Uniform(0, max_stride)) * run.src_element_bytes;
  run.dst_stride = 1000;
  return run;
}

// (run, destination, source) for all elements, sorted.
using Elements = std::vector<std::tuple<uint32_t, uint64_t, uint64_t>>;

Elements RunElements(const std::vector<CopyRun>& runs) {
  Elements elements;
  for (uint32_t r = 0; r < runs.size(); ++r) {
    for (uint64_t u = 0; u < runs[r].count; ++u) {
      for (uint64_t e = 0; e < runs[r].unit; ++e) {
        elements.emplace_back(
            r, u * runs[r].dst_stride + e * runs[r].dst_element_bytes,
            runs[r].src + u * runs[r].src_stride +
                e * runs[r].src_element_bytes);
      }
    }
  }
  std::sort(elements.begin(), elements.end());
  return elements;
}

void ExpectSortedAndDisjoint(const ReadSchedule& schedule, uint64_t max_bytes) {
  for (size_t i = 0; i < schedule.ranges.size(); ++i) {
    const ReadRange& range = schedule.ranges[i];
    EXPECT_GT(range.length, 0u);
    EXPECT_LE(range.length, max_bytes);
    EXPECT_GT(range.num_runs, 0u);
    if (i == 0) continue;
    const ReadRange& before = schedule.ranges[i - 1];
    EXPECT_TRUE(before.file < range.file ||
                (before.file == range.file &&
                 before.offset + before.length <= range.offset));
  }
}

TEST(ReadSchedule, ApplyingItCopiesEveryElementOnce) {
  testing::Random random;
  const std::vector<uint8_t> file(2 << 20);
  for (int round = 0; round < 300; ++round) {
    std::vector<CopyRun> runs;
    for (int64_t i = random.Uniform(1, 12); i > 0; --i) {
      runs.push_back(RandomRun(random));
    }
    const uint64_t max_bytes = uint64_t{1} << random.Uniform(3, 20);
    const ReadSchedule schedule = ScheduleReads(runs, {max_bytes});
    ExpectSortedAndDisjoint(schedule, max_bytes);
    Elements copied;
    for (const ReadRange& range : schedule.ranges) {
      const ByteSpan data =
          ByteSpan(file).subspan(range.offset, range.length + kReadMarginBytes);
      for (uint32_t i = 0; i < range.num_runs; ++i) {
        const uint32_t index = schedule.run_indices[range.first_run + i];
        const CopyRun& run = runs[index];
        EXPECT_EQ(run.file, range.file);
        const size_t before = copied.size();
        ApplyRun(run, range.offset, range.length, data,
                 [&](const uint8_t* src, uint64_t dst, uint64_t count) {
                   const auto offset =
                       range.offset + static_cast<uint64_t>(src - data.data());
                   for (uint64_t e = 0; e < count; ++e) {
                     copied.emplace_back(index, dst + e,
                                         offset + e * run.src_element_bytes);
                   }
                 });
        EXPECT_GT(copied.size(), before);
      }
    }
    std::sort(copied.begin(), copied.end());
    ASSERT_EQ(copied, RunElements(runs));
  }
}

// A few loops over a part of the file.
NestRun RandomNest(testing::Random& random) {
  NestRun run;
  run.src_element_bytes = 1u << random.Uniform(0, 4);
  run.src = ToUnsigned(random.Uniform(0, 1 << random.Uniform(5, 18)));
  run.unit = ToUnsigned(random.Uniform(1, 9));
  for (int64_t i = random.Uniform(0, 3); i > 0; --i) {
    run.loops.push_back(
        {.count = ToUnsigned(random.Uniform(2, 5)),
         .src_stride = ToUnsigned(random.Uniform(
                           0, int64_t{1} << random.Uniform(0, 13))) *
                       run.src_element_bytes,
         .dst_stride = 1});
  }
  return run;
}

// The sources of all the nests' elements.
std::vector<uint64_t> ElementSources(absl::Span<const NestRun> nests) {
  std::vector<uint64_t> sources;
  for (const NestRun& run : nests) {
    const size_t first = sources.size();
    for (uint64_t e = 0; e < run.unit; ++e) {
      sources.push_back(run.src + e * run.src_element_bytes);
    }
    for (const CopyLoop& loop : run.loops) {
      const size_t last = sources.size();
      for (uint64_t i = 1; i < loop.count; ++i) {
        for (size_t at = first; at < last; ++at) {
          sources.push_back(sources[at] + i * loop.src_stride);
        }
      }
    }
  }
  std::sort(sources.begin(), sources.end());
  return sources;
}

TEST(ReadSchedule, NestsAreReadWithTheOtherRuns) {
  testing::Random random;
  const std::vector<uint8_t> file(2 << 20);
  for (int round = 0; round < 300; ++round) {
    const std::vector<CopyRun> runs = {Bytes(0, 100, 1000), Bytes(0, 5000, 1)};
    std::vector<NestRun> nests;
    for (int64_t i = random.Uniform(1, 6); i > 0; --i) {
      nests.push_back(RandomNest(random));
    }
    const ReadLimits limits{.max_bytes = uint64_t{1} << random.Uniform(3, 20),
                            .gap_bytes = uint64_t{1} << random.Uniform(0, 16)};
    const ReadSchedule schedule = ScheduleReads(runs, nests, limits);
    ExpectSortedAndDisjoint(schedule, limits.max_bytes);
    std::vector<uint64_t> applied;
    uint64_t num_bytes = 0;
    for (const ReadRange& range : schedule.ranges) {
      const ByteSpan data =
          ByteSpan(file).subspan(range.offset, range.length + kReadMarginBytes);
      for (uint32_t i = 0; i < range.num_runs; ++i) {
        const uint32_t index = schedule.run_indices[range.first_run + i];
        if (index < runs.size()) {
          ApplyRun(
              runs[index], range.offset, range.length, data,
              [&](const uint8_t*, uint64_t, uint64_t n) { num_bytes += n; });
          continue;
        }
        const size_t before = applied.size();
        ApplyRun(nests[index - runs.size()], range.offset, range.length, data,
                 [&](const NestRun& part, const uint8_t*) {
                   for (const uint64_t src : ElementSources({&part, 1})) {
                     applied.push_back(src);
                   }
                 });
        EXPECT_GT(applied.size(), before);
      }
    }
    std::sort(applied.begin(), applied.end());
    ASSERT_EQ(applied, ElementSources(nests));
    EXPECT_EQ(num_bytes, 1001u);
  }
}

}  // namespace
}  // namespace dcp
