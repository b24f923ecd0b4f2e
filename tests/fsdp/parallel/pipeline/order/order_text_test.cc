// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/order/order_text.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "c10/util/Exception.h"
#include "fsdp/parallel/pipeline/order/pipeline_action.h"
#include "fsdp/parallel/pipeline/order/pipeline_order.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"

namespace fsdp::testing {
namespace {

using Kind = PipelineAction::Kind;

TEST(PipelineActionText, RoundTrips) {
  const std::vector<std::pair<PipelineSlot, std::string>> cases = {
      {{}, ""},
      {{{Kind::kForward, 0, 0}}, "0F0"},
      {{{Kind::kBackward, 12, 345}}, "12B345"},
      {{{Kind::kBackwardInput, 2, 1}}, "2I1"},
      {{{Kind::kBackwardWeight, 2, 1}}, "2W1"},
      {{{Kind::kForward, 0, 4}, {Kind::kBackward, 3, 1}},
       "(0F4;3B1)OVERLAP_F_B"}};
  for (const auto& [slot, text] : cases) {
    EXPECT_EQ(to_string(slot), text);
    EXPECT_EQ(ParsePipelineSlot(text), slot);
    EXPECT_EQ(ParsePipelineSlot(" " + text + " "), slot);
  }
}

TEST(PipelineActionText, RefusesOtherText) {
  for (const std::string text :
       {"F0", "0F", "0X1", "0SEND_F1", "0UNSHARD", "-1F0", "0F-1", "0F1x",
        "1000000F0", "0F1000000", "99999999999999999999F0", "0F0;1B0"}) {
    ExpectError<c10::ValueError>(
        [&] { ParsePipelineSlot(text); },
        {"'" + text + "' is not an action of a pipeline"});
  }
  ExpectError<c10::ValueError>([] { ParsePipelineSlot("(0F0;1B0)"); },
                               {"is not a pair of actions"});
  for (const std::string text : {"(0F0)OVERLAP_F_B", "(0B0;1F0)OVERLAP_F_B",
                                 "(0F0;1B0;2F0)OVERLAP_F_B"}) {
    ExpectError<c10::ValueError>([&] { ParsePipelineSlot(text); },
                                 {"overlaps other actions than"});
  }
}

TEST(OrderText, CsvRoundTrips) {
  for (const ScheduleKind kind :
       {ScheduleKind::kInterleaved1F1B, ScheduleKind::kZBVZeroBubble,
        ScheduleKind::kDualPipeV}) {
    const PipelineOrder order = MakePipelineOrder(kind, {3, 2, 6});
    EXPECT_EQ(ParseOrderCsv(FormatOrderCsv(order)), order);
  }
  const PipelineOrder order{{{{Kind::kForward, 0, 0}}, {}}};
  EXPECT_EQ(ParseOrderCsv("\"0F0\",\n"), order);
  EXPECT_EQ(ParseOrderCsv("0F0, "), order);
  ExpectError<c10::ValueError>(
      [] { ParseOrderCsv("0F0\n" + std::string(101, '1')); },
      {"line 2", "101 characters"});
}

TEST(OrderText, TableHasARowForEachSlot) {
  EXPECT_EQ(FormatOrderTable(
                MakePipelineOrder(ScheduleKind::kInterleaved1F1B, {2, 1, 2})),
            "        Rank 0 Rank 1\n"
            "Step 0: 0F0\n"
            "Step 1: 0F1    1F0\n"
            "Step 2:        1B0\n"
            "Step 3:        1F1\n"
            "Step 4:        1B1\n"
            "Step 5: 0B0\n"
            "Step 6:\n"
            "Step 7: 0B1\n");
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t i = text.find(part); i != std::string::npos;
       i = text.find(part, i + 1)) {
    ++count;
  }
  return count;
}

TEST(OrderText, SvgHasABoxForEachAction) {
  const Timeline timeline =
      MakeTimeline(MakePipelineOrder(ScheduleKind::kZBVZeroBubble, {2, 2, 4}));
  const std::string svg = FormatTimelineSvg(timeline);
  EXPECT_EQ(Count(svg, "<rect "), 4u * 4 * 3);
  EXPECT_EQ(Count(svg, ">rank "), 2u);
  EXPECT_EQ(Count(svg, "<title>3W2</title>"), 1u);
  // The second rank's first forward begins after one unit.
  EXPECT_EQ(Count(svg,
                  "<rect x='84' y='30' width='24' height='24' "
                  "fill='hsl(210,65%,82%)' stroke='#444'>"
                  "<title>1F0</title>"),
            1u);
  // Its upper stage is darker.
  EXPECT_EQ(Count(svg, "hsl(210,65%,70%)' stroke='#444'><title>2F0</title>"),
            1u);
}

}  // namespace
}  // namespace fsdp::testing
