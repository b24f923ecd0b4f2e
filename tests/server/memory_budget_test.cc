#include "server/memory_budget.h"

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

// Wishes that note who was served.
class Desk {
 public:
  explicit Desk(MemoryBudget& budget) : budget_(budget) {}

  uint64_t Ask(int who, uint64_t bytes) {
    absl::StatusOr<uint64_t> ticket =
        budget_.Request(bytes, [this, who](Reservation reservation) {
          served_.push_back(who);
          held_.push_back(std::move(reservation));
        });
    EXPECT_OK(ticket);
    return ticket.value_or(0);
  }

  std::vector<int> served_;
  std::vector<Reservation> held_;

 private:
  MemoryBudget& budget_;
};

TEST(MemoryBudget, GrantsAtOnceWhatIsThere) {
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

TEST(MemoryBudget, ALargeWishIsNotOvertakenBySmallOnes) {
  MemoryBudget budget(100);
  Desk desk(budget);
  desk.Ask(1, 60);
  desk.Ask(2, 100);
  desk.Ask(3, 10);
  EXPECT_THAT(desk.served_, ElementsAre(1));
  EXPECT_EQ(budget.num_waiting(), 2);
  { const Reservation returned = std::move(desk.held_[0]); }
  EXPECT_THAT(desk.served_, ElementsAre(1, 2));
  { const Reservation returned = std::move(desk.held_[1]); }
  EXPECT_THAT(desk.served_, ElementsAre(1, 2, 3));
  EXPECT_EQ(budget.used_bytes(), 10);
}

TEST(MemoryBudget, RefusesWhatCanNeverBe) {
  MemoryBudget budget(100);
  EXPECT_THAT(
      budget.Request(101, [](Reservation) { FAIL(); }),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("101 bytes")));
}

TEST(MemoryBudget, RefusesMoreThanMayWait) {
  MemoryBudget budget(1);
  uint64_t num_served = 0;
  {
    Desk desk(budget);
    desk.Ask(0, 1);
    for (uint64_t i = 0; i < kMaxWaiting; ++i) {
      ASSERT_OK(budget.Request(1, [&](Reservation) { ++num_served; }));
    }
    EXPECT_THAT(budget.Request(1, [](Reservation) { FAIL(); }),
                StatusIs(absl::StatusCode::kResourceExhausted));
  }
  // Each is returned in the call that grants it, and no stack grows.
  EXPECT_EQ(num_served, kMaxWaiting);
}

TEST(MemoryBudget, AWithdrawnWishIsNotServedAndNobodyWaitsForIt) {
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

TEST(MemoryBudget, AServedWishIsNotWithdrawn) {
  MemoryBudget budget(100);
  Desk desk(budget);
  EXPECT_FALSE(budget.Cancel(desk.Ask(1, 60)));
}

TEST(MemoryBudget, AWithdrawnWishMayHoldMemoryItself) {
  MemoryBudget budget(100);
  Desk desk(budget);
  desk.Ask(1, 60);
  Reservation held = std::move(desk.held_[0]);
  absl::StatusOr<uint64_t> ticket =
      budget.Request(80, [held = std::move(held)](Reservation) {});
  ASSERT_OK(ticket);
  EXPECT_TRUE(budget.Cancel(*ticket));
  EXPECT_EQ(budget.used_bytes(), 0);
}

TEST(MemoryBudget, WhoIsServedMayAskAgain) {
  MemoryBudget budget(100);
  Desk desk(budget);
  ASSERT_OK(budget.Request(100, [&](Reservation first) {
    desk.Ask(2, 50);
    EXPECT_THAT(desk.served_, ElementsAre());
    first = Reservation();
    EXPECT_EQ(first.bytes(), 0);
  }));
  EXPECT_THAT(desk.served_, ElementsAre(2));
}

TEST(MemoryBudget, ReassigningGivesBack) {
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
          absl::StatusOr<uint64_t> ticket =
              budget.Request(bytes, [&](Reservation reservation) {
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
