// SPDX-License-Identifier: Apache-2.0

#include "server/memory/memory_budget.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Makes requests and records who was served.
class Desk {
 public:
  explicit Desk(MemoryBudget& budget) : budget_(budget) {}

  uint64_t Ask(int who, uint64_t bytes, MemoryUse use = MemoryUse::kCall) {
    absl::StatusOr<uint64_t> ticket =
        budget_.Request(use, bytes, [this, who](Reservation reservation) {
          served_.push_back(who);
          held_.push_back(std::move(reservation));
        });
    EXPECT_OK(ticket);
    return ticket.value_or(0);
  }

  uint64_t AskForJob(int who, uint64_t bytes) {
    return Ask(who, bytes, MemoryUse::kJob);
  }
  bool IsServed(int who) const {
    return std::find(served_.begin(), served_.end(), who) != served_.end();
  }

  std::vector<int> served_;
  std::vector<Reservation> held_;

 private:
  MemoryBudget& budget_;
};

TEST(MemoryBudget, GrantsAvailableMemoryAtOnce) {
  MemoryBudget budget(100);
  Desk desk(budget);
  desk.Ask(1, 60);
  desk.Ask(2, 40);
  EXPECT_THAT(desk.served_, ElementsAre(1, 2));
  EXPECT_EQ(budget.used_bytes(), 100);
  EXPECT_EQ(desk.held_[0].bytes(), 60);
  desk.held_.clear();
  EXPECT_EQ(budget.used_bytes(), 0);
}

// Neither a small nor a large request waits for ever.
TEST(MemoryBudget, SmallRequestsOvertakeALargeOneALimitedNumberOfTimes) {
  for (const MemoryUse use : {MemoryUse::kCall, MemoryUse::kJob}) {
    MemoryBudget budget(100);
    Desk desk(budget);
    desk.Ask(1, 60, use);
    desk.Ask(2, 100, use);
    for (int i = 0; i < kMaxOvertaken; ++i) {
      desk.Ask(10 + i, 10, use);
      EXPECT_TRUE(desk.IsServed(10 + i));
      desk.held_.pop_back();
    }
    desk.Ask(3, 10, use);
    EXPECT_FALSE(desk.IsServed(2));
    EXPECT_FALSE(desk.IsServed(3));
    EXPECT_EQ(budget.num_waiting(), 2);
    { const Reservation returned = std::move(desk.held_[0]); }
    EXPECT_TRUE(desk.IsServed(2));
    EXPECT_FALSE(desk.IsServed(3));
    { const Reservation returned = std::move(desk.held_.back()); }
    EXPECT_TRUE(desk.IsServed(3));
  }
}

TEST(MemoryBudget, JobsLeaveAShareToCalls) {
  MemoryBudget budget(100, /*calls_bytes=*/30);
  Desk desk(budget);
  desk.AskForJob(1, 70);
  const uint64_t waits = desk.AskForJob(2, 10);  // for the first job
  desk.Ask(3, 30);
  EXPECT_THAT(desk.served_, ElementsAre(1, 3));
  EXPECT_THAT(
      budget.Request(MemoryUse::kJob, 71, [](Reservation) { FAIL(); }),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("for jobs")));
  EXPECT_TRUE(budget.Cancel(waits));
}

TEST(MemoryBudget, CallsExceedTheirShareOnlyWhileNoJobWaits) {
  MemoryBudget budget(100, /*calls_bytes=*/30);
  Desk desk(budget);
  desk.Ask(1, 90);
  desk.AskForJob(2, 20);
  desk.Ask(3, 5);  // there is room for it
  EXPECT_THAT(desk.served_, ElementsAre(1));
  { const Reservation returned = std::move(desk.held_[0]); }
  EXPECT_THAT(desk.served_, ElementsAre(1, 2, 3));
}

TEST(MemoryBudget, KeptMemoryIsNeverGranted) {
  MemoryBudget budget(100, /*calls_bytes=*/30);
  const Reservation kept = budget.Keep(20);
  EXPECT_EQ(budget.used_bytes(), 20);
  EXPECT_THAT(
      budget.Request(MemoryUse::kCall, 81, [](Reservation) { FAIL(); }),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("for calls")));
  Desk desk(budget);
  desk.Ask(1, 80);
  EXPECT_THAT(desk.served_, ElementsAre(1));
}

TEST(MemoryBudget, RefusesImpossibleRequests) {
  MemoryBudget budget(100);
  EXPECT_THAT(
      budget.Request(MemoryUse::kCall, 101, [](Reservation) { FAIL(); }),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("101 bytes")));
}

TEST(MemoryBudget, RefusesTooManyWaitingRequests) {
  MemoryBudget budget(1);
  uint64_t num_served = 0;
  {
    Desk desk(budget);
    desk.Ask(0, 1);
    for (uint64_t i = 0; i < kMaxWaiting; ++i) {
      ASSERT_OK(budget.Request(MemoryUse::kCall, 1,
                               [&](Reservation) { ++num_served; }));
    }
    EXPECT_THAT(
        budget.Request(MemoryUse::kCall, 1, [](Reservation) { FAIL(); }),
        StatusIs(absl::StatusCode::kResourceExhausted));
  }
  // Each is returned in the call that grants it, so the stack does not grow.
  EXPECT_EQ(num_served, kMaxWaiting);
}

TEST(MemoryBudget, WithdrawnRequestsAreNotServedAndBlockNobody) {
  MemoryBudget budget(100);
  Desk desk(budget);
  desk.Ask(1, 60);
  const uint64_t ticket = desk.Ask(2, 80);
  desk.Ask(3, 40);
  EXPECT_TRUE(budget.Cancel(ticket));
  EXPECT_FALSE(budget.Cancel(ticket));
  EXPECT_THAT(desk.served_, ElementsAre(1, 3));
  desk.held_.clear();
  EXPECT_THAT(desk.served_, ElementsAre(1, 3));
}

TEST(MemoryBudget, DoesNotWithdrawServedRequests) {
  MemoryBudget budget(100);
  Desk desk(budget);
  EXPECT_FALSE(budget.Cancel(desk.Ask(1, 60)));
}

TEST(MemoryBudget, WithdrawnRequestMayHoldMemory) {
  MemoryBudget budget(100);
  Desk desk(budget);
  desk.Ask(1, 60);
  Reservation held = std::move(desk.held_[0]);
  absl::StatusOr<uint64_t> ticket = budget.Request(
      MemoryUse::kCall, 80, [held = std::move(held)](Reservation) {});
  ASSERT_OK(ticket);
  EXPECT_TRUE(budget.Cancel(*ticket));
  EXPECT_EQ(budget.used_bytes(), 0);
}

TEST(MemoryBudget, ServedUsersMayRequestAgain) {
  MemoryBudget budget(100);
  Desk desk(budget);
  ASSERT_OK(budget.Request(MemoryUse::kCall, 100, [&](Reservation first) {
    desk.Ask(2, 50);
    EXPECT_THAT(desk.served_, ElementsAre());
    first = Reservation();
    EXPECT_EQ(first.bytes(), 0);
  }));
  EXPECT_THAT(desk.served_, ElementsAre(2));
}

TEST(MemoryBudget, ReassigningReturnsMemory) {
  MemoryBudget budget(100);
  Desk desk(budget);
  desk.Ask(1, 30);
  desk.Ask(2, 50);
  desk.held_[0] = std::move(desk.held_[1]);
  EXPECT_EQ(budget.used_bytes(), 50);
}

TEST(MemoryBudget, StaysUnderTheLimitWithManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 2000;
  MemoryBudget budget(10);
  std::atomic<uint64_t> held = 0;
  std::atomic<int> served = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kRounds; ++i) {
          const auto bytes = static_cast<uint64_t>(1 + (i + t) % 7);
          absl::StatusOr<uint64_t> ticket = budget.Request(
              MemoryUse::kCall, bytes, [&](Reservation reservation) {
                EXPECT_LE(held += reservation.bytes(), 10);
                held -= reservation.bytes();
                ++served;
              });
          EXPECT_OK(ticket);
          if (ticket.ok() && i % 3 == 0 && budget.Cancel(*ticket)) ++served;
        }
      });
    }
  }
  EXPECT_EQ(served, kThreads * kRounds);
  EXPECT_EQ(budget.used_bytes(), 0);
}

}  // namespace
}  // namespace dcp::server
