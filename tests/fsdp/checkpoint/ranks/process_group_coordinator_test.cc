// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/ranks/process_group_coordinator.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::fsdp::testing::RunRanks;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string MakeText(int64_t rank, size_t length) {
  return std::string(length, static_cast<char>('a' + rank));
}

TEST(ProcessGroupCoordinator, HasOneRankWithoutAJob) {
  ASSERT_OK_AND_ASSIGN(const auto alone,
                       ProcessGroupCoordinator::Make(nullptr, "test"));
  EXPECT_EQ(alone->num_ranks(), 1);
  EXPECT_THAT(alone->Gather("x"), IsOkAndHolds(ElementsAre("x")));
  EXPECT_THAT(alone->Scatter({"y"}), IsOkAndHolds("y"));
  EXPECT_THAT(alone->Any(true), IsOkAndHolds(true));
  EXPECT_THAT(alone->Broadcast("z"), IsOkAndHolds("z"));
}

TEST(ProcessGroupCoordinator, MovesTextsOfAnyLength) {
  RunRanks(3, [] {
    init_process_group();
    ASSERT_OK_AND_ASSIGN(const auto all,
                         ProcessGroupCoordinator::Make(nullptr, "test"));
    const int64_t rank = all->rank();
    for (const size_t length : {0, 1, 247, 248, 249, 100000}) {
      ASSERT_OK_AND_ASSIGN(const std::vector<std::string> texts,
                           all->Gather(MakeText(rank, rank == 1 ? 3 : length)));
      if (rank == 0) {
        EXPECT_THAT(texts, ElementsAre(MakeText(0, length), MakeText(1, 3),
                                       MakeText(2, length)));
      } else {
        EXPECT_THAT(texts, IsEmpty());
      }
      std::vector<std::string> values;
      if (rank == 0) {
        values = {MakeText(0, 5), MakeText(1, length), MakeText(2, 2 * length)};
      }
      EXPECT_THAT(
          all->Scatter(values),
          IsOkAndHolds(MakeText(
              rank, rank == 0 ? 5 : static_cast<size_t>(rank) * length)));
      EXPECT_THAT(all->Broadcast(rank == 0 ? MakeText(7, length) : ""),
                  IsOkAndHolds(MakeText(7, length)));
    }
    EXPECT_THAT(all->Any(rank == 2), IsOkAndHolds(true));
    EXPECT_THAT(all->Any(false), IsOkAndHolds(false));
    EXPECT_THAT(dcp::Agree(*all, rank == 1 ? absl::DataLossError("torn")
                                           : absl::OkStatus()),
                StatusIs(absl::StatusCode::kDataLoss, "rank 1: torn"));
    // A coordinator for a group's training thread is kept.
    ASSERT_OK_AND_ASSIGN(const auto one,
                         ProcessGroupCoordinator::ForTraining(nullptr));
    ASSERT_OK_AND_ASSIGN(const auto same,
                         ProcessGroupCoordinator::ForTraining(world_group()));
    EXPECT_EQ(one, same);
  });
}

TEST(ProcessGroupCoordinator, WorksForASubsetOfRanks) {
  RunRanks(3, [] {
    init_process_group();
    const ProcessGroup pair = new_group({0, 2}, "pair");
    if (pair) {
      // Rank 1 does not take part and notices nothing.
      ASSERT_OK_AND_ASSIGN(const auto two,
                           ProcessGroupCoordinator::Make(pair, "test"));
      EXPECT_EQ(two->num_ranks(), 2);
      EXPECT_THAT(two->Any(get_rank() == 2), IsOkAndHolds(true));
    }
    ASSERT_OK_AND_ASSIGN(const auto all,
                         ProcessGroupCoordinator::Make(nullptr, "test"));
    EXPECT_THAT(all->Any(false), IsOkAndHolds(false));
  });
}

TEST(ProcessGroupCoordinator, ADeadRankIsAnError) {
  RunRanks(
      2,
      [] {
        init_process_group({.timeout = std::chrono::seconds(20)});
        ASSERT_OK_AND_ASSIGN(const auto all,
                             ProcessGroupCoordinator::Make(nullptr, "saving"));
        EXPECT_OK(all->Any(false));
        if (get_rank() == 1) _exit(0);
        const absl::Status status = dcp::Agree(*all, absl::OkStatus());
        EXPECT_THAT(status, StatusIs(AnyOf(absl::StatusCode::kUnavailable,
                                           absl::StatusCode::kDeadlineExceeded),
                                     HasSubstr("\"saving\"")));
      },
      {.may_die = {1}});
}

}  // namespace
}  // namespace fsdp
