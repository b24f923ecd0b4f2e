// SPDX-License-Identifier: Apache-2.0

#include "server/process/task_queue.h"

#include <atomic>
#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/denied_calls.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::WithoutNewThreads;
using ::testing::HasSubstr;

TEST(TaskQueue, RunsAllBeforeItStops) {
  std::atomic<int> num_run{0};
  TaskQueue queue(3, 100);
  for (int i = 0; i < 100; ++i) {
    ASSERT_OK(queue.Post([&] { ++num_run; }));
  }
  queue.Stop();
  EXPECT_EQ(num_run, 100);
  EXPECT_THAT(queue.Post([] {}), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(TaskQueue, RefusesMoreThanMayWaitAndDestroysThem) {
  TaskQueue queue(1, 2);
  absl::Notification begun;
  absl::Notification go;
  ASSERT_OK(queue.Post([&] {
    begun.Notify();
    go.WaitForNotification();
  }));
  begun.WaitForNotification();
  ASSERT_OK(queue.Post([] {}));
  ASSERT_OK(queue.Post([] {}));
  auto owned = std::make_unique<std::shared_ptr<int>>(std::make_shared<int>(0));
  const std::weak_ptr<int> weak = *owned;
  EXPECT_THAT(queue.Post([owned = std::move(owned)] {}),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(weak.expired());
  go.Notify();
}

TEST(TaskQueue, WithoutAThreadATaskIsRefused) {
  TaskQueue queue(2, 100);
  std::atomic<int> num_run{0};
  WithoutNewThreads([&] {
    EXPECT_THAT(queue.Post([&] { ++num_run; }),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("starts no more threads")));
  });
  ASSERT_OK(queue.Post([&] { ++num_run; }));
  // One is enough.
  WithoutNewThreads([&] {
    for (int i = 0; i < 9; ++i) EXPECT_OK(queue.Post([&] { ++num_run; }));
  });
  queue.Stop();
  EXPECT_EQ(num_run, 10);
}

}  // namespace
}  // namespace dcp::server
