// SPDX-License-Identifier: Apache-2.0

#include "server/memory/memory_request.h"

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

TEST(MemoryRequest, IsGrantedAtOnceIfThereIsMemory) {
  MemoryBudget budget(100);
  std::optional<absl::StatusOr<Reservation>> got;
  MemoryRequest::Ask(
      budget, 60, absl::InfiniteDuration(),
      [&](absl::StatusOr<Reservation> memory) { got = std::move(memory); });
  ASSERT_TRUE(got.has_value());
  ASSERT_OK(*got);
  EXPECT_EQ((*got)->bytes(), 60u);
  EXPECT_EQ(budget.used_bytes(), 60u);
}

TEST(MemoryRequest, IsGrantedWhenMemoryIsReturned) {
  MemoryBudget budget(100);
  std::optional<absl::StatusOr<Reservation>> first;
  std::optional<absl::StatusOr<Reservation>> second;
  MemoryRequest::Ask(
      budget, 60, absl::Hours(1),
      [&](absl::StatusOr<Reservation> memory) { first = std::move(memory); });
  MemoryRequest::Ask(
      budget, 60, absl::Hours(1),
      [&](absl::StatusOr<Reservation> memory) { second = std::move(memory); });
  EXPECT_FALSE(second.has_value());
  first.reset();
  ASSERT_TRUE(second.has_value());
  EXPECT_OK(*second);
}

TEST(MemoryRequest, IsUnavailableAfterTheTimeout) {
  MemoryBudget budget(100);
  std::optional<absl::StatusOr<Reservation>> all;
  MemoryRequest::Ask(
      budget, 100, absl::Hours(1),
      [&](absl::StatusOr<Reservation> memory) { all = std::move(memory); });
  absl::Notification ended;
  absl::Status status;
  MemoryRequest::Ask(budget, 1, absl::Milliseconds(1),
                     [&](absl::StatusOr<Reservation> memory) {
                       status = memory.status();
                       ended.Notify();
                     });
  ended.WaitForNotification();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_GT(RetryAfterMs(status), 0);
  EXPECT_EQ(budget.num_waiting(), 0u);
}

TEST(MemoryRequest, CanBeWithdrawn) {
  MemoryBudget budget(100);
  std::optional<absl::StatusOr<Reservation>> all;
  MemoryRequest::Ask(
      budget, 100, absl::Hours(1),
      [&](absl::StatusOr<Reservation> memory) { all = std::move(memory); });
  bool called = false;
  const auto request =
      MemoryRequest::Ask(budget, 1, absl::Hours(1),
                         [&](absl::StatusOr<Reservation>) { called = true; });
  request->Cancel();
  request->Cancel();
  EXPECT_EQ(budget.num_waiting(), 0u);
  all.reset();
  EXPECT_FALSE(called);
}

TEST(MemoryRequest, RefusesMoreThanTheBudget) {
  MemoryBudget budget(100);
  absl::Status status;
  MemoryRequest::Ask(
      budget, 101, absl::Hours(1),
      [&](absl::StatusOr<Reservation> memory) { status = memory.status(); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace dcp::server
