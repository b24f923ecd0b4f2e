// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/order/pipeline_order.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "c10/util/Exception.h"
#include "fsdp/parallel/pipeline/order/order_text.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"

namespace fsdp::testing {
namespace {

using Kind = PipelineAction::Kind;

std::string Csv(ScheduleKind kind, const PipelineShape& shape) {
  return FormatOrderCsv(MakePipelineOrder(kind, shape));
}

// PyTorch wrote these lines; order_parity_test.py compares many more.
TEST(PipelineOrder, MatchesPyTorch) {
  EXPECT_EQ(Csv(ScheduleKind::kGPipe, {2, 1, 3}),
            "0F0,0F1,0F2,0B0,0B1,0B2\r\n1F0,1F1,1F2,1B0,1B1,1B2\r\n");
  EXPECT_EQ(Csv(ScheduleKind::k1F1B, {2, 1, 4}),
            "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\r\n"
            "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\r\n");
  EXPECT_EQ(Csv(ScheduleKind::kInterleaved1F1B, {2, 2, 2}),
            "0F0,0F1,2F0,2F1,,,,2B0,,2B1,,0B0,,0B1\r\n"
            ",1F0,1F1,,3F0,3B0,3F1,3B1,,1B0,,1B1\r\n");
  EXPECT_EQ(Csv(ScheduleKind::kZBVZeroBubble, {1, 2, 1}),
            "0F0,1F0,1I0,1W0,0I0,0W0\r\n");
}

TEST(PipelineOrder, HoldsFewMicrobatchesWith1F1B) {
  constexpr int64_t kMicrobatches = 7;
  for (int64_t num = 1; num <= kMicrobatches; ++num) {
    const PipelineOrder order =
        MakePipelineOrder(ScheduleKind::k1F1B, {num, 1, kMicrobatches});
    for (int64_t rank = 0; rank < num; ++rank) {
      int64_t held = 0, most = 0;
      for (const PipelineSlot& slot : order[static_cast<size_t>(rank)]) {
        held += slot.at(0).kind == Kind::kForward ? 1 : -1;
        most = std::max(most, held);
      }
      EXPECT_EQ(held, 0);
      EXPECT_EQ(most, num - rank);
    }
  }
}

TEST(PipelineOrder, PutsStagesOnRanks) {
  const PipelineShape shape{3, 2, 6};
  EXPECT_EQ(
      StageRanks(MakePipelineOrder(ScheduleKind::kInterleaved1F1B, shape)),
      (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(StageRanks(MakePipelineOrder(ScheduleKind::kDualPipeV, shape)),
            (std::vector<int64_t>{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(StagesOnRank(ScheduleKind::kInterleaved1F1B, shape, 1),
            (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(StagesOnRank(ScheduleKind::kZBVZeroBubble, shape, 1),
            (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(StagesOnRank(ScheduleKind::kZBVZeroBubble, shape, 0),
            (std::vector<int64_t>{0, 5}));
}

TEST(PipelineOrder, ForwardsOnlyLeavesOutBackwards) {
  const PipelineOrder order = ForwardsOnly(
      MakePipelineOrder(ScheduleKind::kInterleaved1F1B, {2, 2, 2}));
  EXPECT_EQ(FormatOrderCsv(order), "0F0,0F1,2F0,2F1\r\n1F0,1F1,3F0,3F1\r\n");
  EXPECT_EQ(StageRanks(order), (std::vector<int64_t>{0, 1, 0, 1}));
}

TEST(PipelineOrder, RefusesShapes) {
  struct Case {
    ScheduleKind kind;
    PipelineShape shape;
    std::vector<std::string> says;
  };
  const std::vector<Case> cases = {
      {ScheduleKind::k1F1B,
       {4, 1, 3},
       {"3 microbatches and 4 stages", "ScheduleGPipe"}},
      {ScheduleKind::kGPipe,
       {4, 1, 0},
       {"ScheduleGPipe needs at least one microbatch, not 0"}},
      {ScheduleKind::kGPipe, {0, 1, 1}, {"not 0 ranks with 1 stages"}},
      {ScheduleKind::k1F1B,
       {2, 2, 8},
       {"Schedule1F1B has one stage on each rank, not 2"}},
      {ScheduleKind::kInterleaved1F1B,
       {4, 2, 9},
       {"for each 4 microbatches", "9 microbatches are not a multiple of 2"}},
      {ScheduleKind::kInterleavedZeroBubble,
       {2, 2, 5},
       {"5 microbatches are not a multiple of 2 rounds"}},
      {ScheduleKind::kZBVZeroBubble,
       {2, 3, 8},
       {"ScheduleZBVZeroBubble has exactly 2 stages on each rank, not 3"}},
      {ScheduleKind::kDualPipeV,
       {2, 2, 3},
       {"3 microbatches and 4 stages", "ScheduleZBVZeroBubble"}}};
  for (const Case& c : cases) {
    ExpectError<c10::ValueError>([&] { MakePipelineOrder(c.kind, c.shape); },
                                 c.says);
  }
}

TEST(PipelineOrder, RefusesIncompleteOrders) {
  const auto expect = [](const std::string& csv, const std::string& says) {
    ExpectError<c10::ValueError>([&] { ParseOrderCsv(csv); }, {says});
  };
  expect("", "is empty");
  expect("0F0,0B0,0F0\n", "rank 0, slot 2: 0F0 comes twice");
  expect("0B0,0F0\n", "rank 0, slot 0: 0B0 comes twice, or before");
  expect("0F0,0W0,0I0\n", "slot 1: 0W0 comes twice, or before");
  expect("0F0,0B0\n0F1,0B1\n", "rank 1, slot 0: 0F1 is a stage of rank 0 too");
  expect("0F0,0I0\n", "lacks a part of stage 0's work on microbatch 0 of 1");
  expect("0F0,0B0,0F2,0B2\n", "stage 0's work on microbatch 1 of 3");
  expect("0F0,0B0\n2F0,2B0\n", "lacks a part of stage 1's work");
  expect("0F0,0F1,0B1\n", "lacks a part of stage 0's work on microbatch 0");
}

}  // namespace
}  // namespace fsdp::testing
