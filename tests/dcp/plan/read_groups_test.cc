// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/read_groups.h"

#include <cstdint>
#include <vector>

#include "dcp/base/limits.h"
#include "dcp/plan/read_schedule.h"
#include "dcp/plan/strided/copy_run.h"
#include "dcp/plan/strided/nest_run.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

constexpr uint64_t kPitch = 200'000;  // a row's bytes in the file

// A stripe in a matrix that is transposed.
NestRun Stripe(uint64_t rows, uint64_t columns, uint32_t element_bytes = 2) {
  NestRun run;
  run.src = 1000;
  run.src_element_bytes = element_bytes;
  run.dst_element_bytes = element_bytes;
  run.loops = {{columns, element_bytes, rows * element_bytes},
               {rows, kPitch, element_bytes}};
  return run;
}

std::vector<ReadGroup> MakeReadGroups(const std::vector<CopyRun>& runs,
                                      const std::vector<NestRun>& nests,
                                      uint64_t max_bytes = 1 << 20) {
  return GroupReads(ScheduleReads(runs, nests, {kBlockBytes}), runs.size(),
                    nests, max_bytes);
}

TEST(ReadGroups, FillWholeCacheLines) {
  // A row has 200 bytes, and 256 with the margin.
  EXPECT_EQ(MakeReadGroups({}, {Stripe(100, 100)}, 50 * 256),
            (std::vector<ReadGroup>{{0, 32}, {32, 32}, {64, 32}, {96, 4}}));
  EXPECT_EQ(MakeReadGroups({}, {Stripe(50, 100)}),
            (std::vector<ReadGroup>{{0, 50}}));
  // One row that is left is not worth a group.
  EXPECT_EQ(MakeReadGroups({}, {Stripe(33, 100)}, 40 * 256),
            (std::vector<ReadGroup>{{0, 32}}));
}

TEST(ReadGroups, HaveALimitedNumberOfRows) {
  EXPECT_EQ(MakeReadGroups({}, {Stripe(300, 1)}),
            (std::vector<ReadGroup>{{0, 256}, {256, 44}}));
}

TEST(ReadGroups, IncludeMargins) {
  const std::vector<NestRun> nests = {Stripe(50, 100)};
  const ReadSchedule schedule = ScheduleReads({}, nests, {kBlockBytes});
  const FileRows rows =
      GroupRows({.first_range = 3, .num_ranges = 7}, schedule);
  EXPECT_EQ(rows.offset, 1000 + 3 * kPitch);
  EXPECT_EQ(rows.length, 200u);
  EXPECT_EQ(rows.stride, kPitch);
  EXPECT_EQ(rows.count, 7u);
  EXPECT_EQ(rows.pitch, 256u);
}

TEST(ReadGroups, HaveFewLongRows) {
  // 60,000 bytes and their margin are 60,032.
  EXPECT_EQ(MakeReadGroups({}, {Stripe(9, 30'000)}, 5 * 60'032),
            (std::vector<ReadGroup>{{0, 5}, {5, 4}}));
  EXPECT_TRUE(MakeReadGroups({}, {Stripe(9, 30'000)}, 4 * 60'032 - 1).empty());
}

TEST(ReadGroups, HaveRowsThatServeTheSameNests) {
  NestRun upper = Stripe(20, 10);
  upper.src += 20;  // in the same rows, next to the other
  EXPECT_EQ(MakeReadGroups({}, {Stripe(50, 10), upper}),
            (std::vector<ReadGroup>{{0, 20}, {20, 30}}));
}

TEST(ReadGroups, HaveRowsOfOneFile) {
  NestRun other = Stripe(10, 10);
  other.file = 1;
  EXPECT_EQ(MakeReadGroups({}, {Stripe(10, 10), other}),
            (std::vector<ReadGroup>{{0, 10}, {10, 10}}));
}

TEST(ReadGroups, HaveEquallyDistantRows) {
  NestRun later = Stripe(10, 10);
  later.src += 10 * kPitch + 100'000;
  EXPECT_EQ(MakeReadGroups({}, {Stripe(10, 10), later}),
            (std::vector<ReadGroup>{{0, 10}, {10, 10}}));
}

TEST(ReadGroups, DoNotServeUnitsThatFillLines) {
  NestRun run = Stripe(50, 10, 4);
  run.unit = 8;
  run.loops[0].src_stride *= 8;
  run.loops[0].dst_stride *= 8;
  run.loops[1].dst_stride *= 8;
  EXPECT_EQ(MakeReadGroups({}, {run}).size(), 1u);
  run.unit = 16;
  run.loops[0].src_stride *= 2;
  run.loops[0].dst_stride *= 2;
  run.loops[1].dst_stride *= 2;
  EXPECT_TRUE(MakeReadGroups({}, {run}).empty());
}

TEST(ReadGroups, DoNotServeRuns) {
  const CopyRun rows{.src = 1000,
                     .unit = 20,
                     .count = 50,
                     .src_stride = kPitch,
                     .dst_stride = 20};
  EXPECT_TRUE(MakeReadGroups({rows}, {}).empty());
  EXPECT_TRUE(MakeReadGroups({rows}, {Stripe(50, 10)}).empty());
}

TEST(ReadGroups, AreEmptyForAnEmptySchedule) {
  EXPECT_TRUE(MakeReadGroups({}, {}).empty());
}

}  // namespace
}  // namespace dcp
