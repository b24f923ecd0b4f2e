// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/order/message_plan.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/parallel/pipeline/order/order_text.h"
#include "gtest/gtest.h"

namespace fsdp::testing {
namespace {

using MessageKind = PipelineMessage::Kind;

std::string Text(const std::vector<PipelineMessage>& messages) {
  std::string text;
  for (const PipelineMessage& message : messages) {
    text += (message.kind == MessageKind::kActivations ? " a" : " g") +
            std::to_string(message.to_stage) + ":" +
            std::to_string(message.microbatch);
  }
  return text;
}

TEST(MessagePlan, NeighboursOnOneRankSendNothing) {
  const MessagePlan plan = MakeMessagePlan(
      MakePipelineOrder(ScheduleKind::kZBVZeroBubble, {1, 2, 2}));
  EXPECT_TRUE(plan.rank_pairs().empty());
  for (const PlannedAction& planned : plan.ranks.at(0)) {
    EXPECT_EQ(Text(planned.receives) + Text(planned.sent), "");
  }
}

TEST(MessagePlan, ListsPairsOfRanks) {
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(MakeMessagePlan(
                MakePipelineOrder(ScheduleKind::kInterleaved1F1B, {3, 2, 3}))
                .rank_pairs(),
            (Pairs{{0, 1}, {0, 2}, {1, 2}}));
  EXPECT_EQ(MakeMessagePlan(
                MakePipelineOrder(ScheduleKind::kZBVZeroBubble, {3, 2, 3}))
                .rank_pairs(),
            (Pairs{{0, 1}, {1, 2}}));
}

// Rank 0 sends microbatch 0 first, rank 1 needs 1 first.
TEST(MessagePlan, ReceivesAreInTheSendersOrder) {
  const MessagePlan plan = MakeMessagePlan(ParseOrderCsv("0F0,0F1\n1F1,1F0\n"));
  EXPECT_EQ(Text(plan.ranks[1][0].receives), " a1:0 a1:1");
  EXPECT_EQ(Text(plan.ranks[1][1].receives), "");
}

// For every schedule: each message is received once, in the sender's order, by
// the action that needs it or an earlier one, and no wait makes a circle.
TEST(MessagePlan, IsSoundForAllSchedules) {
  for (int64_t kind = 0; kind < kNumScheduleKinds - 1; ++kind) {
    const auto schedule = static_cast<ScheduleKind>(kind);
    const int64_t stages = kind < 2 ? 1 : 2;
    for (const int64_t ranks : {1, 2, 3, 5}) {
      const PipelineOrder order =
          MakePipelineOrder(schedule, {ranks, stages, 4 * ranks});
      for (const PipelineOrder& each : {order, ForwardsOnly(order)}) {
        const MessagePlan plan = MakeMessagePlan(each);
        std::set<PipelineMessage> received, awaited;
        for (const auto& actions : plan.ranks) {
          for (const PlannedAction& planned : actions) {
            for (const PipelineMessage& m : planned.receives) {
              EXPECT_TRUE(received.insert(m).second) << Text({m});
            }
            for (const PipelineMessage& m : planned.sent) {
              EXPECT_TRUE(awaited.insert(m).second) << Text({m});
            }
            // A message that the action needs has been issued.
            const PipelineAction& action = planned.action;
            const bool forward = action.kind == PipelineAction::Kind::kForward;
            const int64_t from = action.stage + (forward ? -1 : 1);
            if (action.kind == PipelineAction::Kind::kBackwardWeight ||
                from < 0 || from >= plan.num_stages() ||
                plan.rank_of(from) == plan.rank_of(action.stage)) {
              continue;
            }
            EXPECT_TRUE(received.contains(
                {forward ? MessageKind::kActivations : MessageKind::kGradients,
                 action.stage, action.microbatch}))
                << to_string(action);
          }
        }
        const bool sends = ranks > 1;
        EXPECT_EQ(!received.empty(), sends);
        // Few wait for the end of the step, whose number does not grow.
        EXPECT_LE(received.size() - awaited.size(),
                  static_cast<size_t>(8 * ranks * ranks));
      }
    }
  }
}

}  // namespace
}  // namespace fsdp::testing
