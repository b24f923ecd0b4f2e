// SPDX-License-Identifier: Apache-2.0

#include "server/process/task_queue.h"

#include <atomic>
#include <memory>
#include <string>
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

TEST(TaskQueue, RunsAllTasksBeforeItStops) {
  std::atomic<int> num_run{0};
  TaskQueue queue({.num_threads = 3, .per_client = 3, .max_waiting = 100});
  for (int i = 0; i < 100; ++i) {
    ASSERT_OK(queue.Post(kNoClient, [&] { ++num_run; }));
  }
  queue.Stop();
  EXPECT_EQ(num_run, 100);
  EXPECT_THAT(queue.Post(kNoClient, [] {}),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST(TaskQueue, RefusesAndDestroysExcessTasks) {
  TaskQueue queue({.max_waiting = 2});
  absl::Notification begun;
  absl::Notification go;
  ASSERT_OK(queue.Post(kNoClient, [&] {
    begun.Notify();
    go.WaitForNotification();
  }));
  begun.WaitForNotification();
  ASSERT_OK(queue.Post(kNoClient, [] {}));
  ASSERT_OK(queue.Post(kNoClient, [] {}));
  auto owned = std::make_unique<std::shared_ptr<int>>(std::make_shared<int>(0));
  const std::weak_ptr<int> weak = *owned;
  EXPECT_THAT(queue.Post(kNoClient, [owned = std::move(owned)] {}),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(weak.expired());
  go.Notify();
}

// Holds the thread that runs it until it is opened.
struct Hold {
  absl::Notification begun;
  absl::Notification open;
  void operator()() {
    begun.Notify();
    open.WaitForNotification();
  }
};

TEST(TaskQueue, ClientsTakeTurns) {
  TaskQueue queue({.max_waiting = 100});
  std::string order;
  Hold hold;
  ASSERT_OK(queue.Post("a", [&] { hold(); }));
  hold.begun.WaitForNotification();
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(queue.Post("a", [&] { order += 'a'; }));
  }
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(queue.Post("b", [&] { order += 'b'; }));
  }
  hold.open.Notify();
  queue.Stop();
  EXPECT_EQ(order, "babaa");
}

TEST(TaskQueue, LeavesAThreadToOtherClients) {
  TaskQueue queue({.num_threads = 2, .per_client = 1, .max_waiting = 100});
  Hold hold;
  bool second_ran = false;
  ASSERT_OK(queue.Post("a", [&] { hold(); }));
  ASSERT_OK(queue.Post("a", [&] { second_ran = true; }));
  hold.begun.WaitForNotification();
  for (const char* other : {"b", "c", "b"}) {
    absl::Notification ran;
    ASSERT_OK(queue.Post(other, [&] { ran.Notify(); }));
    ran.WaitForNotification();
  }
  EXPECT_FALSE(second_ran);
  hold.open.Notify();
  queue.Stop();
  EXPECT_TRUE(second_ran);
}

TEST(TaskQueue, LeavesPlacesToOtherClients) {
  TaskQueue queue({.max_waiting = 4});
  Hold hold;
  ASSERT_OK(queue.Post("a", [&] { hold(); }));
  hold.begun.WaitForNotification();
  for (int i = 0; i < 3; ++i) ASSERT_OK(queue.Post("a", [] {}));
  EXPECT_THAT(queue.Post("a", [] {}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("3 requests of a already wait")));
  EXPECT_OK(queue.Post("b", [] {}));
  EXPECT_THAT(queue.Post("c", [] {}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("4 requests already wait")));
  hold.open.Notify();
}

TEST(TaskQueue, RefusesTasksWithoutAThread) {
  TaskQueue queue({.num_threads = 2, .per_client = 2, .max_waiting = 100});
  std::atomic<int> num_run{0};
  WithoutNewThreads([&] {
    EXPECT_THAT(queue.Post(kNoClient, [&] { ++num_run; }),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("starts no more threads")));
  });
  ASSERT_OK(queue.Post(kNoClient, [&] { ++num_run; }));
  // One is enough.
  WithoutNewThreads([&] {
    for (int i = 0; i < 9; ++i)
      EXPECT_OK(queue.Post(kNoClient, [&] { ++num_run; }));
  });
  queue.Stop();
  EXPECT_EQ(num_run, 10);
}

}  // namespace
}  // namespace dcp::server
