// SPDX-License-Identifier: Apache-2.0
// What clients may do with jobs, and the limits. Over a real socket: see
// job_server.h.
#include "server/jobs/job_manager.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "dcp/base/error_place.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "proto/rpc_status.h"
#include "tests/server/jobs/job_fixture.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

using JobManagerTest = JobFixture;

TEST_F(JobManagerTest, RunsAJobToItsEnd) {
  const std::string name = Submit("out");
  const auto operation = server_->Wait(name);
  ASSERT_OK(operation);
  EXPECT_TRUE(operation->done());
  tessera::v1::ConvertResult result;
  ASSERT_TRUE(operation->response().UnpackTo(&result));
  EXPECT_EQ(result.num_tensors(), 5u);
  EXPECT_EQ(result.num_files(), static_cast<uint64_t>(kNumFiles));
  const auto metadata = MetadataOf(*operation);
  EXPECT_EQ(metadata.state(), JobMetadata::SUCCEEDED);
  EXPECT_EQ(metadata.files_done(), static_cast<uint64_t>(kNumFiles));
  EXPECT_EQ(metadata.bytes_done(), metadata.bytes_total());
  EXPECT_GT(metadata.bytes_total(), uint64_t{1} << 20);
  EXPECT_TRUE(metadata.has_start_time());
  EXPECT_TRUE(metadata.has_end_time());
  ExpectWhole("out");
  EXPECT_THAT(server_->metrics().Text(),
              HasSubstr("tessera_jobs_total{kind=\"convert\","
                        "state=\"succeeded\"} 1"));
}

TEST_F(JobManagerTest, AJobThatFailsSaysWhy) {
  auto request = server_->Request("out");
  request.mutable_source()->set_path(server_->data("none"));
  const auto operation = server_->Convert(request);
  ASSERT_OK(operation);
  const auto ended = server_->Wait(operation->name());
  ASSERT_OK(ended);
  EXPECT_EQ(MetadataOf(*ended).state(), JobMetadata::FAILED);
  EXPECT_THAT(ErrorOf(*ended),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_EQ(ErrorReasonName(ErrorOf(*ended)), "CHECKPOINT_NOT_FOUND");
}

TEST_F(JobManagerTest, ARequestIdMakesASecondSubmitHarmless) {
  auto request = server_->Request("out");
  const std::string id = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
  request.mutable_options()->set_request_id(id);
  const auto first = server_->Convert(request);
  ASSERT_OK(first);
  ASSERT_OK(server_->Wait(first->name()));
  const auto second = server_->Convert(request);
  ASSERT_OK(second);
  EXPECT_EQ(second->name(), first->name());
  EXPECT_TRUE(second->done());
  request.mutable_destination()->set_path(server_->data("elsewhere"));
  const absl::Status reused = server_->Convert(request).status();
  EXPECT_THAT(reused,
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(id)));
  EXPECT_EQ(ErrorReasonName(reused), "REQUEST_ID_REUSED");
  // The same holds after a restart.
  Start();
  request.mutable_destination()->set_path(server_->data("out"));
  const auto third = server_->Convert(request);
  ASSERT_OK(third);
  EXPECT_EQ(third->name(), first->name());
}

TEST_F(JobManagerTest, TwoJobsDoNotWriteToOnePlace) {
  Gate gate(*server_, "OpenForRead", "source");
  const std::string first = Submit("out");
  const absl::Status in_use =
      server_->Convert(server_->Request("out")).status();
  EXPECT_THAT(in_use, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("another job")));
  EXPECT_EQ(ErrorReasonName(in_use), "DESTINATION_IN_USE");
  EXPECT_EQ(GetErrorInfo(in_use).metadata().at("name"), first);
  EXPECT_EQ(StatusPlace(in_use).path, server_->data("out"));
  gate.Open();
  ASSERT_OK(server_->Wait(first));
  auto again = server_->Request("out");
  again.mutable_destination()->set_overwrite(true);
  const auto second = server_->Convert(again);
  ASSERT_OK(second);
  const auto ended = server_->Wait(second->name());
  ASSERT_OK(ended);
  EXPECT_OK(ErrorOf(*ended));
}

TEST_F(JobManagerTest, AnotherClientSeesNothing) {
  // The digests of "one" and "two".
  settings_.tokens =
      "a 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed "
      "write=" +
      dir_.Join("data") +
      "\n"
      "b 3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3\n";
  Start();
  EXPECT_THAT(server_->Convert(server_->Request("out")).status(),
              StatusIs(absl::StatusCode::kUnauthenticated));
  server_->set_token("one");
  const std::string name = Submit("out");
  ASSERT_OK(server_->Wait(name));
  server_->set_token("two");
  for (const absl::Status& status :
       {server_->Get(name).status(), server_->Wait(name).status(),
        server_->Cancel(name), server_->Delete(name)}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound));
  }
  EXPECT_EQ(server_->List()->operations_size(), 0);
  EXPECT_THAT(server_->Convert(server_->Request("other")).status(),
              StatusIs(absl::StatusCode::kPermissionDenied));
  server_->set_token("one");
  EXPECT_EQ(server_->List()->operations_size(), 1);
}

TEST_F(JobManagerTest, KeepsToItsLimits) {
  settings_.options.max_running_jobs = 1;
  settings_.options.max_queued_jobs = 2;
  Start();
  Gate gate(*server_, "OpenForRead", "source");
  std::vector<std::string> names = {Submit("running")};
  gate.WaitUntilReached();
  names.push_back(Submit("queued-1"));
  names.push_back(Submit("queued-2"));
  const auto refused = server_->Convert(server_->Request("queued-3"));
  EXPECT_THAT(refused.status(), StatusIs(absl::StatusCode::kResourceExhausted,
                                         HasSubstr("queued")));
  EXPECT_GT(RetryAfterMs(refused.status()), 0);
  gate.Open();
  for (const std::string& name : names) {
    EXPECT_OK(ErrorOf(*server_->Wait(name)));
  }
  settings_.options.max_queued_jobs = 100;
  settings_.options.max_jobs_per_client = 1;
  Start();
  Gate second(*server_, "OpenForRead", "source");
  const std::string name = Submit("one");
  EXPECT_THAT(
      server_->Convert(server_->Request("two")).status(),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("one client")));
  second.Open();
  ASSERT_OK(server_->Wait(name));
  EXPECT_OK(ErrorOf(*server_->Wait(Submit("two"))));
}

TEST_F(JobManagerTest, TakesNothingMoreWhileItDrains) {
  server_->manager().Drain(absl::ZeroDuration());
  const auto refused = server_->Convert(server_->Request("out"));
  EXPECT_THAT(refused.status(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_GT(RetryAfterMs(refused.status()), 0);
  auto plan = server_->Request("out");
  plan.mutable_options()->set_validate_only(true);
  EXPECT_THAT(server_->Convert(plan).status(),
              StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace dcp::server
