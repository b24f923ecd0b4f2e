// SPDX-License-Identifier: Apache-2.0

#include "client/job_client.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "tests/client/fake_server.h"
#include "tests/testing/status_matchers.h"

namespace dcp::client {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace v1 = tessera::v1;

class JobClientTest : public ::testing::Test {
 protected:
  FakeServer server_;
  JobClient client_{server_.Connect()};
};

TEST_F(JobClientTest, SubmitRetriesKeepTheRequestId) {
  server_.jobs.num_failures = 2;
  ASSERT_OK_AND_ASSIGN(const Job job, client_.Reshard({}));
  EXPECT_EQ(job.name, "operations/1");
  EXPECT_FALSE(job.done);
  EXPECT_EQ(job.metadata.state(), v1::JobMetadata::PENDING);
  const std::vector<std::string> ids = server_.jobs.request_ids();
  ASSERT_EQ(ids.size(), 3);
  EXPECT_EQ(ids[0].size(), 36);
  EXPECT_THAT(ids, ElementsAre(ids[0], ids[0], ids[0]));
}

TEST_F(JobClientTest, KeepsTheCallersRequestId) {
  v1::ReshardRequest request;
  request.mutable_options()->set_request_id("mine");
  EXPECT_OK(client_.Reshard(request));
  EXPECT_THAT(server_.jobs.request_ids(), ElementsAre("mine"));
}

TEST_F(JobClientTest, WaitsUntilTheJobIsDone) {
  server_.operations.num_early_waits = 2;
  ASSERT_OK_AND_ASSIGN(const Job job, client_.Wait("operations/1"));
  EXPECT_TRUE(job.done);
  EXPECT_OK(job.status);
  ASSERT_TRUE(job.converted.has_value());
  EXPECT_EQ(job.converted->num_tensors(), 5);
  EXPECT_FALSE(job.verified.has_value());
}

TEST_F(JobClientTest, WaitEndsAtTheTimeout) {
  server_.operations.hang = true;
  EXPECT_THAT(client_.Wait("operations/1", {.timeout = absl::Milliseconds(50)}),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("WaitOperation")));
  server_.operations.release.Notify();
}

TEST_F(JobClientTest, WatchResumesAfterEachBreak) {
  for (const bool cut : {false, true}) {
    server_.jobs.cut_watches = cut;
    server_.jobs.num_failures = 2;
    std::vector<v1::JobMetadata::State> states;
    ASSERT_OK_AND_ASSIGN(const Job job,
                         client_.Watch("operations/1", [&](const Job& now) {
                           states.push_back(now.metadata.state());
                         }));
    EXPECT_TRUE(job.done);
    EXPECT_THAT(states,
                ElementsAre(v1::JobMetadata::PENDING, v1::JobMetadata::RUNNING,
                            v1::JobMetadata::SUCCEEDED));
  }
}

TEST_F(JobClientTest, WatchFailsForAMissingJob) {
  EXPECT_THAT(client_.Watch("operations/2", [](const Job&) { FAIL(); }),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("WatchJob")));
}

TEST_F(JobClientTest, ReturnsAFailedJobsStatus) {
  ASSERT_OK_AND_ASSIGN(const Job job, client_.Get("operations/failed"));
  EXPECT_TRUE(job.done);
  EXPECT_THAT(job.status,
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("torn")));
  EXPECT_FALSE(job.converted.has_value());
}

TEST_F(JobClientTest, RefusesOperationsThatAreNotJobs) {
  EXPECT_THAT(client_.Get("operations/odd"),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(JobClientTest, ListsAllPages) {
  ASSERT_OK_AND_ASSIGN(const std::vector<Job> jobs,
                       client_.ListAll("state = RUNNING"));
  ASSERT_EQ(jobs.size(), 2);
  EXPECT_EQ(jobs[0].name, "operations/1");
  EXPECT_EQ(jobs[1].name, "operations/2");
}

TEST_F(JobClientTest, RestartsTheListAfterAServerRestart) {
  server_.operations.num_refused_tokens = 2;
  ASSERT_OK_AND_ASSIGN(const std::vector<Job> jobs, client_.ListAll(""));
  ASSERT_EQ(jobs.size(), 2);
  EXPECT_EQ(jobs[0].name, "operations/1");
  server_.operations.num_refused_tokens = 1000;
  EXPECT_EQ(ErrorReasonName(client_.ListAll("").status()),
            "INVALID_PAGE_TOKEN");
}

TEST_F(JobClientTest, CancelsByName) {
  EXPECT_OK(client_.Cancel("operations/1"));
  EXPECT_THAT(
      client_.Cancel("operations/2"),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("CancelOperation")));
  EXPECT_THAT(client_.Delete("operations/1"),
              StatusIs(absl::StatusCode::kUnimplemented));
}

}  // namespace
}  // namespace dcp::client
