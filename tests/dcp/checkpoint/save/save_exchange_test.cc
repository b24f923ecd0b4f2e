// SPDX-License-Identifier: Apache-2.0
// Tests the messages one by one. async_save_test tests that whole saves are
// consistent whatever the ranks contribute.
#include "dcp/checkpoint/save/save_exchange.h"

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/save/save_plan_cache.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/thread_coordinator.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOk;
using ::dcp::testing::RunRanks;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Phase = SaveExchange::Phase;

// One of two rows, by `rank`, and two tensors that both ranks have.
SaveState MakeRankState(int64_t rank) {
  SaveState state;
  for (const char* name : {"a", "b"}) {
    state.tensors.push_back({.fqn = name, .shape = {100}, .box = {{0}, {100}}});
  }
  state.tensors.push_back(
      {.fqn = "rows", .shape = {2, 3}, .box = {{rank, 0}, {1, 3}}});
  return state;
}

// Both ranks go through the exchange; returns the items that each must write.
struct Outcome {
  bool had_plan[2];
  bool kept_plan[2];
  std::vector<size_t> items[2];
  std::string files[2];
};

Outcome Exchange(SimStorage& fs, const std::string& path,
                 SavePlanCache* const caches[2]) {
  Outcome outcome;
  EXPECT_THAT(
      RunRanks(2,
               [&](Coordinator& coordinator) -> absl::Status {
                 const auto rank = static_cast<size_t>(coordinator.rank());
                 const SaveState state = MakeRankState(coordinator.rank());
                 SaveExchange exchange(fs, path, state, coordinator,
                                       /*overwrite=*/true, caches[rank]);
                 EXPECT_EQ(exchange.phase(), Phase::kBegun);
                 outcome.had_plan[rank] = exchange.has_plan();
                 DCP_RETURN_IF_ERROR(exchange.Meet(absl::OkStatus()));
                 EXPECT_EQ(exchange.phase(), Phase::kMet);
                 outcome.kept_plan[rank] = exchange.has_plan();
                 DCP_RETURN_IF_ERROR(exchange.Receive(absl::OkStatus()));
                 EXPECT_EQ(exchange.phase(), Phase::kOrdered);
                 EXPECT_TRUE(exchange.has_plan());
                 outcome.items[rank] = exchange.items();
                 outcome.files[rank] = exchange.file_name();
                 return absl::OkStatus();
               }),
      Each(IsOk()));
  return outcome;
}

TEST(SaveExchange, SharesReplicasAndKeepsThePlan) {
  SimStorage fs;
  SavePlanCache caches[2];
  SavePlanCache* const both[2] = {&caches[0], &caches[1]};
  for (const bool again : {false, true}) {
    const Outcome outcome = Exchange(fs, "/c", both);
    EXPECT_THAT(outcome.had_plan, Each(again));
    EXPECT_THAT(outcome.kept_plan, Each(again));
    EXPECT_THAT(outcome.items[0], ElementsAre(0, 2));
    EXPECT_THAT(outcome.items[1], ElementsAre(1, 2));
    EXPECT_THAT(outcome.files, ElementsAre("__0_0.distcp", "__1_0.distcp"));
  }
  EXPECT_EQ(caches[0].plan_id(), caches[1].plan_id());
  // Without a commit, nothing remains.
  EXPECT_THAT(fs.Stat("/c"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(SaveExchange, PlansAgainUnlessAllHaveTheSamePlan) {
  SimStorage fs;
  SavePlanCache caches[2];
  SavePlanCache* const both[2] = {&caches[0], &caches[1]};
  Exchange(fs, "/c", both);
  const SavePlanCache older = caches[1];
  // Rank 0 has no plan, rank 1 has no plan, and rank 1 has an older plan.
  SavePlanCache* const only_first[2] = {&caches[0], nullptr};
  SavePlanCache* const only_second[2] = {nullptr, &caches[1]};
  EXPECT_THAT(Exchange(fs, "/c", only_second).kept_plan, Each(false));
  EXPECT_THAT(Exchange(fs, "/c", only_first).kept_plan, Each(false));
  EXPECT_THAT(Exchange(fs, "/c", both).kept_plan, Each(false));
  EXPECT_THAT(Exchange(fs, "/c", both).kept_plan, Each(true));
  caches[1] = older;
  const Outcome outcome = Exchange(fs, "/c", both);
  EXPECT_THAT(outcome.had_plan, Each(true));
  EXPECT_THAT(outcome.kept_plan, Each(false));
  EXPECT_THAT(Exchange(fs, "/c", both).kept_plan, Each(true));
}

TEST(SaveExchange, OneRanksErrorFailsAllRanks) {
  for (const int64_t bad : {0, 1}) {
    SimStorage fs;
    EXPECT_THAT(
        RunRanks(2,
                 [&](Coordinator& coordinator) {
                   const SaveState state = MakeRankState(coordinator.rank());
                   SaveExchange exchange(fs, "/c", state, coordinator,
                                         /*overwrite=*/true, nullptr);
                   const absl::Status met =
                       exchange.Meet(coordinator.rank() == bad
                                         ? absl::AbortedError("unplugged")
                                         : absl::OkStatus());
                   EXPECT_EQ(exchange.phase(), Phase::kOver);
                   EXPECT_EQ(exchange.status(), met);
                   return met;
                 }),
        Each(StatusIs(absl::StatusCode::kAborted,
                      absl::StrCat("rank ", bad, ": unplugged"))));
  }
}

TEST(SaveExchange, RankZeroMayStillFailAfterTheMeeting) {
  SimStorage fs;
  EXPECT_THAT(
      RunRanks(2,
               [&](Coordinator& coordinator) {
                 const SaveState state = MakeRankState(coordinator.rank());
                 SaveExchange exchange(fs, "/c", state, coordinator,
                                       /*overwrite=*/true, nullptr);
                 EXPECT_OK(exchange.Meet(absl::OkStatus()));
                 const absl::Status received = exchange.Receive(
                     coordinator.rank() == 0 ? absl::AbortedError("unplugged")
                                             : absl::OkStatus());
                 EXPECT_EQ(exchange.phase(), Phase::kOver);
                 return received;
               }),
      Each(StatusIs(absl::StatusCode::kAborted, HasSubstr("rank 0"))));
  EXPECT_THAT(fs.Stat("/c"), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace dcp
