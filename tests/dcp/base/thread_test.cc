// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/denied_calls.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::WithoutNewThreads;
using ::testing::HasSubstr;

TEST(Thread, RunsAndIsJoined) {
  std::atomic<int> calls = 0;
  {
    ASSERT_OK_AND_ASSIGN(Thread first, Thread::Start([&] { ++calls; }));
    Thread moved = std::move(first);
    ASSERT_OK_AND_ASSIGN(Thread second, Thread::Start([&] { ++calls; }));
    moved = std::move(second);
    EXPECT_GE(calls, 1);
  }
  EXPECT_EQ(calls, 2);
}

TEST(Thread, LowersItsOwnPriorityAlone) {
  const auto nice_value = [] {
    return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
  };
  const int before = nice_value();
  int lowered = before;
  {
    ASSERT_OK_AND_ASSIGN(Thread thread, Thread::Start([&] {
                           Thread::LowerPriority();
                           lowered = nice_value();
                         }));
  }
  EXPECT_EQ(nice_value(), before);
  EXPECT_GE(lowered, 10);
}

TEST(Thread, AFailedStartIsAnError) {
  WithoutNewThreads([] {
    EXPECT_THAT(Thread::Start([] {}).status(),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("the system starts no more threads")));
  });
  EXPECT_OK(Thread::Start([] {}).status());
}

}  // namespace
}  // namespace dcp
