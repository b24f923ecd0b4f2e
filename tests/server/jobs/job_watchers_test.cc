// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_watchers.h"

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/job.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

Job JobOfNumber(int64_t number) {
  Job job;
  job.number = number;
  return job;
}

TEST(JobWatchers, AreToldOfTheirJob) {
  JobWatchers watchers;
  int first = 0;
  int second = 0;
  ASSERT_OK_AND_ASSIGN(const uint64_t id,
                       watchers.Add(JobOfNumber(1), [&] { ++first; }));
  ASSERT_OK(watchers.Add(JobOfNumber(2), [&] { ++second; }).status());
  watchers.Notify(1);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 0);
  watchers.NotifyAll();
  EXPECT_EQ(first, 2);
  EXPECT_EQ(second, 1);
  watchers.Remove(id);
  watchers.Remove(id);  // a second time is harmless
  watchers.Notify(1);
  watchers.NotifyAll();
  EXPECT_EQ(first, 2);
  EXPECT_EQ(second, 2);
}

TEST(JobWatchers, OfOneJobAreLimited) {
  JobWatchers watchers;
  uint64_t last = 0;
  for (size_t i = 0; i < kMaxWatchers; ++i) {
    ASSERT_OK_AND_ASSIGN(last, watchers.Add(JobOfNumber(1), [] {}));
  }
  EXPECT_THAT(watchers.Add(JobOfNumber(1), [] {}).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("is watched by 100")));
  EXPECT_OK(watchers.Add(JobOfNumber(2), [] {}).status());
  watchers.Remove(last);
  EXPECT_OK(watchers.Add(JobOfNumber(1), [] {}).status());
}

TEST(JobWatchers, MayLeaveWhileTheyAreTold) {
  JobWatchers watchers;
  uint64_t id = 0;
  int told = 0;
  ASSERT_OK_AND_ASSIGN(id, watchers.Add(JobOfNumber(1), [&] {
    ++told;
    watchers.Remove(id);
  }));
  watchers.Notify(1);
  watchers.Notify(1);
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace dcp::server
