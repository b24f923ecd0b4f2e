// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/order/timeline.h"

#include <cstdint>
#include <string>
#include <vector>

#include "c10/util/Exception.h"
#include "fsdp/parallel/pipeline/order/order_text.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"

namespace fsdp::testing {
namespace {

double Bubble(ScheduleKind kind, const PipelineShape& shape,
              const ActionCosts& costs = {}) {
  return BubbleTime(MakeTimeline(MakePipelineOrder(kind, shape), costs));
}

TEST(Timeline, StartsActionsWhenTheirInputsAreThere) {
  const Timeline timeline =
      MakeTimeline(ParseOrderCsv("0F0,0I0,0W0\n1F0,1B0\n"),
                   {.forward = 1, .input = 2, .weight = 4});
  ASSERT_EQ(timeline[0].size(), 3u);
  EXPECT_EQ(timeline[1][0].start, 1);
  EXPECT_EQ(timeline[1][1].end, 2 + 6);
  EXPECT_EQ(timeline[0][1].start, 8);
  EXPECT_EQ(timeline[0][2].start, 10);
  EXPECT_EQ(EndTime(timeline), 14);
  // Rank 0 waits from 1 to 8.
  EXPECT_EQ(BubbleTime(timeline), 7);
}

TEST(Timeline, RefusesOrdersThatWaitInACircle) {
  ExpectError<c10::ValueError>(
      [] { MakeTimeline(ParseOrderCsv("0F0,2F0\n1F1,1F0,0F1,2F1\n")); },
      {"rank 1, slot 2: 0F1 is a stage of rank 0 too"});
  ExpectError<c10::ValueError>(
      [] { MakeTimeline(ParseOrderCsv("0F0,2F0,0F1,2F1\n1F1,1F0\n")); },
      {"wait for each other for ever: rank 0 at 2F0, rank 1 at 1F1"});
}

TEST(Timeline, BubblesEqualTheirFormulas) {
  for (const ScheduleKind kind :
       {ScheduleKind::kGPipe, ScheduleKind::k1F1B,
        ScheduleKind::kInterleaved1F1B, ScheduleKind::kInterleavedZeroBubble,
        ScheduleKind::kZBVZeroBubble, ScheduleKind::kDualPipeV}) {
    const bool is_single =
        kind == ScheduleKind::kGPipe || kind == ScheduleKind::k1F1B;
    for (const int64_t ranks : {1, 2, 4, 8}) {
      for (const int64_t stages : {1, 2, 3}) {
        if (is_single ? stages != 1 : IsVSchedule(kind) && stages != 2)
          continue;
        const PipelineShape shape{ranks, stages, 4 * ranks};
        std::vector<ActionCosts> all_costs{{1, 1, 1}, {4, 4, 4}};
        if (!IsVSchedule(kind)) all_costs.push_back({3, 4, 2});
        for (const ActionCosts& costs : all_costs) {
          EXPECT_EQ(Bubble(kind, shape, costs),
                    BubbleFormula(kind, ranks, costs))
              << ScheduleName(kind) << " " << ranks << " " << stages << " "
              << costs.forward;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fsdp::testing
