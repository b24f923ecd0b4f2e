// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_operation.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "google/longrunning/operations_proto.pb.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "server/jobs/job.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using google::longrunning::Operation;
using ::testing::HasSubstr;

constexpr char kId[] = "f47ac10b-58cc-4372-a567-0e02b2c3d479";

TEST(JobOperation, AnIdIsReadFromItsName) {
  Job job;
  job.id = kId;
  EXPECT_EQ(OperationName(job), std::string("operations/") + kId);
  ASSERT_OK_AND_ASSIGN(const std::string id, JobIdFromName(OperationName(job)));
  EXPECT_EQ(id, kId);
  for (const char* name : {"", kId, "operations/", "operations/1"}) {
    EXPECT_THAT(JobIdFromName(name).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("must be 'operations/' and a UUID")))
        << name;
  }
}

TEST(JobOperation, DescribesAJobThatHasEnded) {
  JobEntry entry;
  entry.job.id = kId;
  entry.job.client = "a";
  entry.job.state = JobMetadata::FAILED;
  entry.job.request.kind = JobMetadata::VERIFY;
  entry.job.request.source = "/data/\xff";
  entry.job.create_time = absl::FromUnixSeconds(1);
  entry.job.end_time = absl::FromUnixSeconds(3);
  const Operation operation = DescribeJob(entry);
  EXPECT_TRUE(operation.done());
  JobMetadata metadata;
  ASSERT_TRUE(operation.metadata().UnpackTo(&metadata));
  EXPECT_EQ(metadata.state(), JobMetadata::FAILED);
  EXPECT_THAT(metadata.source(), HasSubstr("/data/"));
  EXPECT_FALSE(metadata.has_start_time());
  EXPECT_EQ(metadata.end_time().seconds(), 3);
  entry.job.state = JobMetadata::RUNNING;
  EXPECT_FALSE(DescribeJob(entry).done());
}

TEST(JobOperation, AnOutcomeComesBack) {
  Operation failed;
  ASSERT_OK(
      AddOutcome(MakeOutcome(absl::NotFoundError("no such file")), failed));
  EXPECT_EQ(failed.error().message(), "no such file");
  Operation malformed;
  const absl::Status status =
      AddOutcome({.response = "\xff", .error = ""}, malformed);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(ErrorReasonName(status), "JOURNAL_FAILED");
}

}  // namespace
}  // namespace dcp::server
