// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/schedule_order.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "c10/util/Exception.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"

namespace fsdp::testing {
namespace {

using Kind = PipelineAction::Kind;

std::string Text(const std::vector<PipelineAction>& order) {
  std::string text;
  for (const PipelineAction& action : order) {
    text += (text.empty() ? "" : " ") +
            std::string(action.kind == Kind::kForward ? "F" : "B") +
            std::to_string(action.microbatch);
  }
  return text;
}

TEST(ScheduleOrder, MatchesPyTorch) {
  EXPECT_EQ(Text(ForwardOrder(3)), "F0 F1 F2");
  EXPECT_EQ(Text(TrainingOrder(ScheduleKind::kGPipe, 1, 2, 3)),
            "F0 F1 F2 B0 B1 B2");
  const auto order = [](int64_t stage, int64_t num_stages, int64_t n) {
    return Text(TrainingOrder(ScheduleKind::k1F1B, stage, num_stages, n));
  };
  EXPECT_EQ(order(0, 2, 4), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(order(1, 2, 4), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_EQ(order(0, 3, 3), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(order(0, 1, 2), "F0 B0 F1 B1");
}

TEST(ScheduleOrder, HoldsFewMicrobatchesWith1F1B) {
  constexpr int64_t kMicrobatches = 7;
  for (int64_t num_stages = 1; num_stages <= kMicrobatches; ++num_stages) {
    for (int64_t stage = 0; stage < num_stages; ++stage) {
      int64_t forwards = 0, backwards = 0, most = 0;
      for (const PipelineAction& action : TrainingOrder(
               ScheduleKind::k1F1B, stage, num_stages, kMicrobatches)) {
        EXPECT_EQ(action.microbatch,
                  action.kind == Kind::kForward ? forwards++ : backwards++);
        most = std::max(most, forwards - backwards);
      }
      EXPECT_EQ(forwards, kMicrobatches);
      EXPECT_EQ(backwards, kMicrobatches);
      EXPECT_EQ(most, num_stages - stage);
    }
  }
}

TEST(ScheduleOrder, RefusesTooFewMicrobatches) {
  ExpectError<c10::ValueError>(
      [] { TrainingOrder(ScheduleKind::k1F1B, 0, 4, 3); },
      {"3 microbatches and 4 stages", "ScheduleGPipe"});
  ExpectError<c10::ValueError>(
      [] { TrainingOrder(ScheduleKind::kGPipe, 0, 4, 0); },
      {"ScheduleGPipe needs at least one microbatch, not 0"});
}

}  // namespace
}  // namespace fsdp::testing
