// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_watch.h"

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/jobs/job_server.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::ElementsAre;

// A job that waits for memory: nothing happens to it by itself.
class JobWatchTest : public ::testing::Test {
 protected:
  JobWatchTest() {
    SetLogSink([](LogSeverity, absl::string_view) {});
    MakeCheckpoint(dir_.Join("data/source"), 2, 1 << 12);
    JobServer::Settings settings;
    settings.hold_memory = true;
    server_ = std::make_unique<JobServer>(dir_.path(), settings);
    name_ = server_->Convert(server_->Request("out"))->name();
  }

  absl::Status Begin() {
    return JobWatch::Begin(
        server_->manager(), client_, name_,
        [this](bool cancelled) {
          absl::MutexLock lock(&mutex_);
          looks_.push_back(cancelled);
        },
        watch_);
  }

  // Whether each check saw a cancellation.
  std::vector<bool> looks() {
    absl::MutexLock lock(&mutex_);
    return looks_;
  }

  const TempDir dir_;
  const Client client_ = Client("anonymous", {});
  std::unique_ptr<JobServer> server_;
  std::string name_;
  absl::Mutex mutex_;
  std::vector<bool> looks_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<JobWatch> watch_;
};

TEST_F(JobWatchTest, LooksOnceAtFirstAndThenAfterEachChange) {
  ASSERT_OK(Begin());
  EXPECT_THAT(looks(), ElementsAre(false));
  watch_->Continue();
  EXPECT_EQ(looks().size(), 1u);
  ASSERT_OK(server_->Cancel(name_));
  EXPECT_THAT(looks(), ElementsAre(false, false));
  watch_->End();
}

TEST_F(JobWatchTest, WhatHappensDuringALookIsLookedAtAfterIt) {
  ASSERT_OK(Begin());
  watch_->Wake();
  watch_->Wake();
  EXPECT_EQ(looks().size(), 1u);
  watch_->Continue();
  EXPECT_EQ(looks().size(), 2u);
  watch_->Cancel();
  EXPECT_EQ(looks().size(), 2u);
  watch_->Continue();
  EXPECT_THAT(looks(), ElementsAre(false, false, true));
  watch_->End();
}

TEST_F(JobWatchTest, AfterItsEndItDoesNotLook) {
  ASSERT_OK(Begin());
  watch_->Continue();
  watch_->End();
  watch_->Wake();
  ASSERT_OK(server_->Cancel(name_));
  EXPECT_EQ(looks().size(), 1u);
}

TEST_F(JobWatchTest, HasAnEndOfItsNumber) {
  std::vector<std::shared_ptr<JobWatch>> watches;
  for (size_t i = 0; i < kMaxWatchers; ++i) {
    ASSERT_OK(Begin());
    watches.push_back(watch_);
  }
  watch_.reset();
  EXPECT_THAT(Begin(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(watch_, nullptr);
  watches[0]->End();
  EXPECT_OK(Begin());
  watch_->End();
  for (const auto& watch : watches) watch->End();
}

TEST_F(JobWatchTest, OfNoJobDoesNotBegin) {
  name_ = "operations/f47ac10b-58cc-4372-a567-0e02b2c3d479";
  EXPECT_THAT(Begin(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(looks().size(), 0u);
}

}  // namespace
}  // namespace dcp::server
