// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_table.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/access/access.h"
#include "server/jobs/job.h"
#include "server/jobs/job_filter.h"
#include "server/jobs/job_operation.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsNull;

JobEntryPtr MakeEntry(int64_t number, const std::string& client) {
  auto entry = std::make_shared<JobEntry>();
  entry->job.number = number;
  entry->job.id = absl::StrCat("f47ac10b-58cc-4372-a567-0e02b2c3d47", number);
  entry->job.client = client;
  entry->job.request.request_id = absl::StrCat("request ", number);
  entry->job.request.destination = absl::StrCat("/out/", number);
  return entry;
}

class JobTableTest : public ::testing::Test {
 protected:
  JobEntryPtr Add(int64_t number, const std::string& client) {
    const JobEntryPtr entry = MakeEntry(number, client);
    absl::MutexLock lock(&jobs_.mutex());
    jobs_.Insert(entry);
    return entry;
  }
  void End(JobEntry& entry, absl::Time time) {
    absl::MutexLock lock(&jobs_.mutex());
    entry.job.state = JobMetadata::SUCCEEDED;
    entry.job.end_time = time;
    jobs_.End(entry);
  }
  // The number of the job to delete next; 0 if there is none.
  int64_t Next(absl::Time oldest, int64_t max_ended) {
    absl::MutexLock lock(&jobs_.mutex());
    const JobEntryPtr next = jobs_.NextToForget(oldest, max_ended);
    return next == nullptr ? 0 : next->job.number;
  }

  const absl::Time time_ = absl::FromUnixSeconds(1'000'000);
  JobTable jobs_;
};

TEST_F(JobTableTest, OnlyItsClientAndAnAdminFindAJob) {
  const JobEntryPtr entry = Add(1, "a");
  const std::string name = OperationName(entry->job);
  absl::MutexLock lock(&jobs_.mutex());
  EXPECT_EQ(*jobs_.Find(Client("a", {}), name), entry);
  EXPECT_EQ(*jobs_.Find(Client("root", {}, /*is_admin=*/true), name), entry);
  EXPECT_THAT(jobs_.Find(Client("b", {}), name).status(),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(jobs_.Find(Client("a", {}), "job 1").status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(jobs_.FindRequest("a", "request 1"), entry);
  EXPECT_THAT(jobs_.FindRequest("b", "request 1"), IsNull());
  EXPECT_THAT(jobs_.FindRequest("a", ""), IsNull());
}

TEST_F(JobTableTest, AJobOwnsItsDestinationUntilItEnds) {
  const JobEntryPtr entry = Add(1, "a");
  {
    absl::MutexLock lock(&jobs_.mutex());
    EXPECT_EQ(jobs_.FindWriter("/out/1"), entry);
    EXPECT_EQ(jobs_.num_live("a"), 1);
  }
  End(*entry, time_);
  absl::MutexLock lock(&jobs_.mutex());
  EXPECT_THAT(jobs_.FindWriter("/out/1"), IsNull());
  EXPECT_EQ(jobs_.num_live("a"), 0);
  EXPECT_EQ(entry->stage, JobStage::kEnded);
}

TEST_F(JobTableTest, ForgetsTheOldestOfTheClientThatHasTheMost) {
  End(*Add(1, "a"), time_);
  for (const int64_t number : {2, 3, 4}) {
    End(*Add(number, "b"), time_ + absl::Seconds(number));
  }
  EXPECT_EQ(Next(time_, 4), 0);
  EXPECT_EQ(Next(time_, 3), 2);
  EXPECT_EQ(Next(time_ + absl::Seconds(1), 4), 1);
  {
    absl::MutexLock lock(&jobs_.mutex());
    const JobEntryPtr second = jobs_.At(2);
    jobs_.Forget(*second);
    jobs_.Forget(*second);  // a second time is harmless
    EXPECT_THAT(jobs_.FindRequest("b", "request 2"), IsNull());
  }
  EXPECT_EQ(Next(time_, 3), 0);
  EXPECT_EQ(Next(time_, 2), 3);
}

TEST_F(JobTableTest, ChoosesInTheOrderOfCreation) {
  for (const int64_t number : {3, 1, 2}) Add(number, "a");
  Add(4, "b");
  ASSERT_OK_AND_ASSIGN(const JobFilter all, JobFilter::Parse(""));
  const auto chosen = [&](const Client& client, int64_t after, size_t most) {
    std::vector<int64_t> numbers;
    for (const JobEntryPtr& entry : jobs_.Choose(client, all, after, most)) {
      numbers.push_back(entry->job.number);
    }
    return numbers;
  };
  EXPECT_THAT(chosen(Client("a", {}), 0, 9), ElementsAre(1, 2, 3));
  EXPECT_THAT(chosen(Client("a", {}), 1, 1), ElementsAre(2));
  EXPECT_THAT(chosen(Client("root", {}, true), 2, 9), ElementsAre(3, 4));
}

}  // namespace
}  // namespace dcp::server
