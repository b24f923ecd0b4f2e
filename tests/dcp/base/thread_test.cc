#include "dcp/base/thread.h"

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
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

// A stack that is larger than the address space that the process may have.
TEST(Thread, OneThatCannotBeStartedIsAnError) {
  pthread_attr_t kept;
  ASSERT_EQ(pthread_getattr_default_np(&kept), 0);
  pthread_attr_t huge;
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 47), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  EXPECT_THAT(Thread::Start([] {}).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("the system starts no more threads")));
  ASSERT_EQ(pthread_setattr_default_np(&kept), 0);
  EXPECT_OK(Thread::Start([] {}).status());
}

}  // namespace
}  // namespace dcp
