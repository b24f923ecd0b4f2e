// SPDX-License-Identifier: Apache-2.0
// Cancellation in each phase, restarts, memory, drains. Over a real socket: see
// job_server.h.
#include "server/jobs/job_scheduler.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/job_journal.h"
#include "tests/server/jobs/job_fixture.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

using JobSchedulerTest = JobFixture;

TEST_F(JobSchedulerTest, CancelsAJobInTheQueue) {
  settings_.options.max_running_jobs = 1;
  Start();
  const std::string before = Files();
  Gate gate(*server_, "OpenForRead", "source");
  const std::string first = Submit("first");
  const std::string second = Submit("second");
  gate.WaitUntilReached();
  ASSERT_OK(server_->Cancel(second));
  const auto ended = server_->Get(second);
  ASSERT_OK(ended);
  EXPECT_TRUE(ended->done());
  EXPECT_THAT(ErrorOf(*ended), StatusIs(absl::StatusCode::kCancelled));
  ASSERT_OK(server_->Cancel(first));
  gate.Open();
  EXPECT_THAT(ErrorOf(*server_->Wait(first)),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(Files(), before);
  EXPECT_EQ(server_->budget().used_bytes(), 0u);
}

TEST_F(JobSchedulerTest, CancelsAJobThatWaitsForMemory) {
  settings_.hold_memory = true;
  Start();
  const std::string name = Submit("out");
  EXPECT_EQ(StateOf(name), JobMetadata::PENDING);
  ASSERT_OK(server_->Cancel(name));
  EXPECT_EQ(StateOf(name), JobMetadata::CANCELLED);
  EXPECT_EQ(server_->budget().num_waiting(), 0u);
  // A job that keeps waiting gets its memory eventually.
  const std::string other = Submit("other");
  server_->ReleaseMemory();
  EXPECT_OK(ErrorOf(*server_->Wait(other)));
}

struct Phase {
  std::string name;
  std::string operation;
  std::string path;
  JobState state;
};

class CancelTest : public JobSchedulerTest,
                   public ::testing::WithParamInterface<Phase> {};

TEST_P(CancelTest, LeavesNothingBehind) {
  const Phase& phase = GetParam();
  const std::string before = Files();
  Gate gate(*server_, phase.operation, phase.path);
  const std::string name = Submit("out");
  gate.WaitUntilReached();
  EXPECT_EQ(StateOf(name), phase.state);
  ASSERT_OK(server_->Cancel(name));
  ASSERT_OK(server_->Cancel(name));  // a second time is harmless
  gate.Open();
  const auto ended = server_->Wait(name);
  ASSERT_OK(ended);
  if (phase.state == JobMetadata::FINISHING) {
    // The cancellation came too late.
    EXPECT_EQ(MetadataOf(*ended).state(), JobMetadata::SUCCEEDED);
    ExpectWhole("out");
    return;
  }
  EXPECT_EQ(MetadataOf(*ended).state(), JobMetadata::CANCELLED);
  EXPECT_THAT(ErrorOf(*ended), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(Files(), before);
  EXPECT_EQ(server_->budget().used_bytes(), 0u);
  // The place is free again.
  EXPECT_OK(ErrorOf(*server_->Wait(Submit("out"))));
}

INSTANTIATE_TEST_SUITE_P(
    Phases, CancelTest,
    ::testing::Values(
        Phase{"Planning", "OpenForRead", "source/.metadata",
              JobMetadata::PLANNING},
        Phase{"MakingTheDestination", "MakeDirectory", "out",
              JobMetadata::PLANNING},
        Phase{"BeforeTheFirstFile", "Create", "out/__0_0",
              JobMetadata::RUNNING},
        Phase{"WritingAFile", "Create", "out/__3_0", JobMetadata::RUNNING},
        Phase{"Committing", "Rename", "out/.metadata", JobMetadata::FINISHING}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST_F(JobSchedulerTest, AJobThatEndsTheServerEachTimeIsGivenUp) {
  std::string name;
  {
    Gate gate(*server_, "Create", "out/__3_0");
    name = Submit("out");
    gate.WaitUntilReached();
    gate.OpenWhenDraining(name);
    server_->Stop();
  }
  if (std::filesystem::exists(server_->data("out/.metadata"))) return;
  server_.reset();
  {
    ASSERT_OK_AND_ASSIGN(const auto journal,
                         JobJournal::Open(dir_.Join("state")));
    const int64_t number = (*journal->Jobs())[0].number;
    for (uint32_t i = 0; i < kMaxRestarts; ++i) {
      ASSERT_OK(journal->CountRestart(number));
    }
    ASSERT_OK(journal->Start(number, absl::Now()));
  }
  Start();
  const auto operation = server_->Get(name);
  ASSERT_OK(operation);
  EXPECT_THAT(ErrorOf(*operation),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("is not tried again")));
  // Other jobs run.
  std::filesystem::remove_all(server_->data("out"));
  EXPECT_OK(ErrorOf(*server_->Wait(Submit("out"))));
}

TEST_F(JobSchedulerTest, ARestartGoesOnWithEveryJob) {
  settings_.options.max_running_jobs = 1;
  Start();
  std::vector<std::string> names;
  {
    Gate gate(*server_, "Create", "out-0/__3_0");
    for (int i = 0; i < 3; ++i) {
      names.push_back(Submit(absl::StrCat("out-", i)));
    }
    gate.WaitUntilReached();
    gate.OpenWhenDraining(names[0]);
    server_->Stop();
  }
  EXPECT_TRUE(std::filesystem::exists(server_->data("out-0/__0_0.distcp")));
  EXPECT_FALSE(std::filesystem::exists(server_->data("out-1")));
  // The job stopped between two files, unless it was faster than the stop.
  const bool stopped =
      !std::filesystem::exists(server_->data("out-0/.metadata"));
  Start();
  for (int i = 0; i < 3; ++i) {
    const auto ended = server_->Wait(names[static_cast<size_t>(i)]);
    ASSERT_OK(ended);
    EXPECT_OK(ErrorOf(*ended));
    const auto metadata = MetadataOf(*ended);
    EXPECT_EQ(metadata.num_restarts(), i > 0 || stopped ? 1u : 0u);
    ExpectWhole(absl::StrCat("out-", i));
  }
}

TEST_F(JobSchedulerTest, WhatIsCancelledAfterARestartLeavesNothing) {
  settings_.options.max_running_jobs = 1;
  Start();
  const std::string before = Files();
  std::string name;
  {
    Gate gate(*server_, "Create", "out/__3_0");
    name = Submit("out");
    gate.WaitUntilReached();
    gate.OpenWhenDraining(name);
    server_->Stop();
  }
  EXPECT_NE(Files(), before);
  const bool stopped = !std::filesystem::exists(server_->data("out/.metadata"));
  settings_.hold_memory = true;
  Start();
  ASSERT_OK(server_->Cancel(name));
  const auto ended = server_->Wait(name);
  ASSERT_OK(ended);
  if (stopped) {
    EXPECT_EQ(MetadataOf(*ended).state(), JobMetadata::CANCELLED);
    EXPECT_EQ(Files(), before);
  } else {
    ExpectWhole("out");  // it was faster than the stop
  }
}

TEST_F(JobSchedulerTest, WhatCannotRunAfterARestartLeavesNothing) {
  const std::string before = Files();
  // The digests of "one", which is removed after the restart, and of another.
  const std::string write = " write=" + dir_.Join("data") + "\n";
  const std::string one =
      "a 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed" +
      write;
  const std::string two =
      "b 3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3" +
      write;
  const uint64_t memory_bytes = settings_.options.max_memory_bytes;
  for (const bool loses_rights : {true, false}) {
    settings_.tokens = one + two;
    settings_.options.max_memory_bytes = memory_bytes;
    Start();
    server_->set_token("one");
    std::string name;
    {
      Gate gate(*server_, "Create", "out/__3_0");
      name = Submit("out");
      gate.WaitUntilReached();
      gate.OpenWhenDraining(Client("a", {}), name);
      server_->Stop();
    }
    if (std::filesystem::exists(server_->data("out/.metadata"))) {
      std::filesystem::remove_all(server_->data("out"));
      continue;  // it was faster than the stop
    }
    EXPECT_NE(Files(), before);
    if (loses_rights) {
      settings_.tokens = "a" + one.substr(1, 65) + "\n" + two;
    } else {
      settings_.options.max_memory_bytes = kMinMemoryBytes - 1;
    }
    Start();
    server_->set_token("one");
    const auto ended = server_->Wait(name);
    ASSERT_OK(ended);
    EXPECT_EQ(MetadataOf(*ended).state(), JobMetadata::FAILED);
    EXPECT_THAT(ErrorOf(*ended),
                StatusIs(loses_rights ? absl::StatusCode::kPermissionDenied
                                      : absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(Files(), before);
    EXPECT_EQ(server_->budget().used_bytes(), 0u);
  }
}

// The digests of "one", whose rights change, and of "two", who looks on.
TEST_F(JobSchedulerTest, ARunningJobEndsWhenItsClientLosesTheRight) {
  const std::string before = Files();
  const std::string a =
      "a 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
  const std::string b =
      "b 3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3 "
      "admin\n";
  const std::string data = dir_.Join("data");
  struct Case {
    std::string tokens;
    bool goes_on;
  };
  for (const Case& change :
       {Case{b, false}, Case{a + " read=" + data + "\n" + b, false},
        Case{"a " + std::string(64, '0') + " write=" + data + "\n" + b,
             true}}) {
    settings_.tokens = a + " write=" + data + "\n" + b;
    Start();
    server_->set_token("one");
    std::string name;
    {
      Gate gate(*server_, "Create", "out/__3_0");
      name = Submit("out");
      gate.WaitUntilReached();
      server_->ReloadTokens(change.tokens);
    }
    server_->set_token("two");
    const auto ended = server_->Wait(name);
    ASSERT_OK(ended);
    if (change.goes_on) {
      EXPECT_EQ(MetadataOf(*ended).state(), JobMetadata::SUCCEEDED);
      continue;
    }
    EXPECT_EQ(MetadataOf(*ended).state(), JobMetadata::FAILED);
    EXPECT_THAT(ErrorOf(*ended), StatusIs(absl::StatusCode::kPermissionDenied));
    EXPECT_EQ(Files(), before);
  }
}

TEST_F(JobSchedulerTest, TwoHundredJobsAtOnceStayWithinTheCaps) {
  constexpr int kNumJobs = 200;
  settings_.options.max_running_jobs = 4;
  settings_.options.max_memory_bytes = 3 * kMinMemoryBytes;
  Start();
  MakeCheckpoint(server_->data("small"), 2, 1 << 12);
  absl::Mutex mutex;
  uint64_t most = 0;
  server_->fs().SetHook([&](absl::string_view, absl::string_view) {
    const uint64_t used = server_->budget().used_bytes();
    absl::MutexLock lock(&mutex);
    most = std::max(most, used);
  });
  std::vector<std::string> names;
  for (int i = 0; i < kNumJobs; ++i) {
    auto request = server_->Request(absl::StrCat("out-", i));
    request.mutable_source()->set_path(server_->data("small"));
    const auto operation = server_->Convert(request);
    ASSERT_OK(operation);
    names.push_back(operation->name());
  }
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(),
            names.size());
  for (const std::string& name : names) {
    const auto ended = server_->Wait(name);
    ASSERT_OK(ended);
    EXPECT_OK(ErrorOf(*ended));
  }
  server_->fs().SetHook(nullptr);
  absl::MutexLock lock(&mutex);
  EXPECT_GT(most, 0u);
  EXPECT_LE(most, settings_.options.max_memory_bytes);
}

TEST_F(JobSchedulerTest, AJobThatIsHeldBeginsLater) {
  server_->manager().Hold(true);
  const std::string name = Submit("out");
  EXPECT_OK(server_->Wait(name, absl::Milliseconds(1)));
  EXPECT_EQ(StateOf(name), JobMetadata::PENDING);
  EXPECT_THAT(server_->metrics().Text(),
              Not(HasSubstr("tessera_oldest_queued_job_seconds 0\n")));
  server_->manager().Hold(false);
  EXPECT_OK(ErrorOf(*server_->Wait(name)));
  EXPECT_THAT(server_->metrics().Text(),
              HasSubstr("tessera_oldest_queued_job_seconds 0\n"));
}

TEST_F(JobSchedulerTest, ADrainWaitsForWhatRuns) {
  Gate gate(*server_, "Create", "out/__3_0");
  const std::string name = Submit("out");
  gate.WaitUntilReached();
  gate.OpenWhenDraining(name);
  server_->manager().Drain(absl::InfiniteDuration());
  EXPECT_EQ(StateOf(name), JobMetadata::SUCCEEDED);
  ExpectWhole("out");
}

// The cancellation comes when the run has stopped for the drain, and has left
// the files to the next start.
TEST_F(JobSchedulerTest, AJobThatIsCancelledWhileItStopsLeavesNothing) {
  JobState state = JobMetadata::SUCCEEDED;
  // The job may also end before it is stopped.
  for (int attempt = 0; state == JobMetadata::SUCCEEDED && attempt < 50;
       ++attempt) {
    std::filesystem::remove_all(server_->data("out"));
    Start();
    // Owners: this attempt, the hook, and the watcher.
    const auto at_file = std::make_shared<Signal>();
    const auto draining = std::make_shared<Signal>();
    std::string name;
    server_->fs().SetHook(
        [&](absl::string_view operation, absl::string_view path) {
          if (operation == "Create" && absl::StrContains(path, "out/__3_0")) {
            at_file->Give();
            draining->Wait();
          }
          if (operation == "Unlock") EXPECT_OK(server_->Cancel(name));
        });
    name = Submit("out");
    at_file->Wait();
    ASSERT_OK(
        server_->manager().Watch(Client("anonymous", {}), name,
                                 [draining, &manager = server_->manager()] {
                                   if (manager.draining()) draining->Give();
                                 }));
    server_->manager().Drain(absl::ZeroDuration());
    state = StateOf(name);
    server_->fs().SetHook(nullptr);
  }
  EXPECT_EQ(state, JobMetadata::CANCELLED);
  EXPECT_FALSE(std::filesystem::exists(server_->data("out")));
}

TEST_F(JobSchedulerTest, ADrainMayBeCutShortByAnother) {
  Gate gate(*server_, "Create", "out/__3_0");
  const std::string name = Submit("out");
  gate.WaitUntilReached();
  const auto draining = std::make_shared<Signal>();
  ASSERT_OK(server_->manager().Watch(Client("anonymous", {}), name,
                                     [draining] { draining->Give(); }));
  std::thread patient(
      [&] { server_->manager().Drain(absl::InfiniteDuration()); });
  draining->Wait();
  // Opens the gate when it has begun.
  std::vector<std::thread> hasty;
  gate.OpenWhenDraining(name);
  for (int i = 0; i < 4; ++i) {
    hasty.emplace_back([&] { server_->manager().Drain(absl::ZeroDuration()); });
  }
  for (std::thread& thread : hasty) thread.join();
  patient.join();
  EXPECT_EQ(server_->manager().num_running(), 0u);
  EXPECT_EQ(server_->budget().used_bytes(), 0u);
  Start();
  EXPECT_OK(ErrorOf(*server_->Wait(name)));
  ExpectWhole("out");
}

TEST_F(JobSchedulerTest, ADrainGivesMemoryBackThatIsGrantedMeanwhile) {
  settings_.hold_memory = true;
  Start();
  const std::string name = Submit("out");
  server_->manager().Drain(absl::ZeroDuration());
  server_->ReleaseMemory();
  EXPECT_EQ(server_->budget().num_waiting(), 0u);
  EXPECT_EQ(server_->budget().used_bytes(), 0u);
  settings_.hold_memory = false;
  Start();
  EXPECT_OK(ErrorOf(*server_->Wait(name)));
}

}  // namespace
}  // namespace dcp::server
