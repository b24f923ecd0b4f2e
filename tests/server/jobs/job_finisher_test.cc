// SPDX-License-Identifier: Apache-2.0
// Tests over a real socket: see job_server.h.
#include "server/jobs/job_finisher.h"

#include <signal.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "dcp/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/jobs/job_fixture.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;

using JobFinisherTest = JobFixture;

TEST_F(JobFinisherTest, ForgetsTheOldestThatHaveEnded) {
  settings_.options.max_ended_jobs = 2;
  Start();
  std::vector<std::string> names;
  for (int i = 0; i < 4; ++i) {
    names.push_back(Submit(absl::StrCat("out-", i)));
    ASSERT_OK(server_->Wait(names.back()));
  }
  // The last job may not have removed an older one yet.
  server_->Stop();
  Start();
  EXPECT_THAT(server_->Get(names[0]).status(),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(server_->Get(names[1]).status(),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(server_->Get(names[2]).status());
  EXPECT_OK(server_->Get(names[3]).status());
  settings_.options.keep_jobs = absl::ZeroDuration();
  Start();
  EXPECT_EQ(server_->List()->operations_size(), 0);
}

TEST_F(JobFinisherTest, AClientsManyJobsLeaveThoseOfOthers) {
  // The digests of "one" and "two".
  const std::string write = " write=" + dir_.Join("data") + "\n";
  settings_.tokens =
      "a 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed" +
      write +
      "b 3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3" +
      write;
  settings_.options.max_ended_jobs = 3;
  Start();
  server_->set_token("two");
  const std::string first = Submit("two");
  ASSERT_OK(server_->Wait(first));
  server_->set_token("one");
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(server_->Wait(Submit(absl::StrCat("one-", i))));
  }
  // The last job may not have removed an older one yet.
  server_->Stop();
  Start();
  server_->set_token("one");
  EXPECT_EQ(server_->List()->operations_size(), 2);
  server_->set_token("two");
  EXPECT_OK(server_->Get(first).status());
}

TEST_F(JobFinisherTest, AnEndThatTheJournalCannotTakeIsNotToldBefore) {
  std::string name;
  {
    Gate gate(*server_, "OpenForRead", "source");
    tessera::v1::VerifyRequest request;
    request.mutable_source()->set_path(server_->data("source"));
    grpc::ClientContext context;
    server_->Prepare(context);
    Operation operation;
    ASSERT_TRUE(server_->jobs().Verify(&context, request, &operation).ok());
    name = operation.name();
    gate.WaitUntilReached();
    // Simulates a full disk: no file can grow.
    const auto ignored = signal(SIGXFSZ, SIG_IGN);
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    absl::Notification failed;
    SetLogSink([&](LogSeverity, absl::string_view line) {
      if (absl::StrContains(line, "event=journal_failed") &&
          !failed.HasBeenNotified()) {
        failed.Notify();
      }
    });
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
    gate.Open();
    failed.WaitForNotification();
    const auto meanwhile = server_->Get(name);
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, ignored);
    ASSERT_OK(meanwhile);
    EXPECT_FALSE(meanwhile->done());
    SetLogSink([](LogSeverity, absl::string_view) {});
  }
  const auto ended = server_->Wait(name);
  ASSERT_OK(ended);
  EXPECT_EQ(MetadataOf(*ended).state(), JobMetadata::SUCCEEDED);
  Start();
  EXPECT_EQ(StateOf(name), JobMetadata::SUCCEEDED);
  EXPECT_EQ(MetadataOf(*server_->Get(name)).num_restarts(), 0u);
}

}  // namespace
}  // namespace dcp::server
