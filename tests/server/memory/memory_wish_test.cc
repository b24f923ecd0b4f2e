#include "server/memory/memory_wish.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "proto/rpc_status.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;

TEST(MemoryWish, IsGrantedAtOnceWhereThereIsMemory) {
  MemoryBudget budget(100);
  std::optional<absl::StatusOr<Reservation>> got;
  MemoryWish::Ask(
      budget, 60, absl::InfiniteDuration(),
      [&](absl::StatusOr<Reservation> memory) { got = std::move(memory); });
  ASSERT_TRUE(got.has_value());
  ASSERT_OK(*got);
  EXPECT_EQ((*got)->bytes(), 60u);
  EXPECT_EQ(budget.used_bytes(), 60u);
}

TEST(MemoryWish, IsGrantedWhenMemoryComesBack) {
  MemoryBudget budget(100);
  std::optional<absl::StatusOr<Reservation>> first;
  std::optional<absl::StatusOr<Reservation>> second;
  MemoryWish::Ask(
      budget, 60, absl::Hours(1),
      [&](absl::StatusOr<Reservation> memory) { first = std::move(memory); });
  MemoryWish::Ask(
      budget, 60, absl::Hours(1),
      [&](absl::StatusOr<Reservation> memory) { second = std::move(memory); });
  EXPECT_FALSE(second.has_value());
  first.reset();
  ASSERT_TRUE(second.has_value());
  EXPECT_OK(*second);
}

TEST(MemoryWish, EndsWithUnavailableAfterItsTime) {
  MemoryBudget budget(100);
  std::optional<absl::StatusOr<Reservation>> all;
  MemoryWish::Ask(
      budget, 100, absl::Hours(1),
      [&](absl::StatusOr<Reservation> memory) { all = std::move(memory); });
  absl::Notification ended;
  absl::Status status;
  MemoryWish::Ask(budget, 1, absl::Milliseconds(1),
                  [&](absl::StatusOr<Reservation> memory) {
                    status = memory.status();
                    ended.Notify();
                  });
  ended.WaitForNotification();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_GT(RetryAfterOf(status), 0);
  EXPECT_EQ(budget.num_waiting(), 0u);
}

TEST(MemoryWish, CanBeWithdrawn) {
  MemoryBudget budget(100);
  std::optional<absl::StatusOr<Reservation>> all;
  MemoryWish::Ask(
      budget, 100, absl::Hours(1),
      [&](absl::StatusOr<Reservation> memory) { all = std::move(memory); });
  bool called = false;
  const auto wish =
      MemoryWish::Ask(budget, 1, absl::Hours(1),
                      [&](absl::StatusOr<Reservation>) { called = true; });
  wish->Cancel();
  wish->Cancel();
  EXPECT_EQ(budget.num_waiting(), 0u);
  all.reset();
  EXPECT_FALSE(called);
}

TEST(MemoryWish, MoreThanThereCanEverBeIsRefused) {
  MemoryBudget budget(100);
  absl::Status status;
  MemoryWish::Ask(
      budget, 101, absl::Hours(1),
      [&](absl::StatusOr<Reservation> memory) { status = memory.status(); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace dcp::server
