// Order, limits, cancellation in each phase, restarts. Over a real socket: see
// job_server.h.
#include "server/jobs/job_manager.h"

#include <signal.h>
#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "proto/rpc_status.h"
#include "tests/server/job_server.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

constexpr int64_t kNumFiles = 6;

// May be given any number of times, by any thread.
class Signal {
 public:
  void Give() {
    absl::MutexLock lock(&mutex_);
    if (!given_.HasBeenNotified()) given_.Notify();
  }
  bool is_given() const { return given_.HasBeenNotified(); }
  void Wait() const { given_.WaitForNotification(); }

 private:
  absl::Mutex mutex_;
  absl::Notification given_;
};

// Holds the first thread that comes to a place until the gate opens. Hooks and
// watchers may be called after the gate is gone, so they own what they use.
class Gate {
 public:
  Gate(JobServer& server, std::string operation, std::string path)
      : server_(server) {
    server.fs().SetHook([reached = reached_, open = open_,
                         operation = std::move(operation),
                         path = std::move(path)](absl::string_view now,
                                                 absl::string_view where) {
      if (now != operation || !absl::StrContains(where, path)) return;
      if (reached->is_given()) return;
      reached->Give();
      open->Wait();
    });
  }
  ~Gate() { Open(); }

  void WaitUntilReached() { reached_->Wait(); }
  void Open() { open_->Give(); }
  // Opens when the server begins to drain, which watchers of `name` are told.
  void OpenWhenDraining(const std::string& name) {
    OpenWhenDraining(Client("anonymous", {}), name);
  }
  void OpenWhenDraining(const Client& client, const std::string& name) {
    JobManager& manager = server_.manager();
    EXPECT_OK(manager.Watch(client, name, [open = open_, &manager] {
      if (manager.draining()) open->Give();
    }));
  }

 private:
  JobServer& server_;
  const std::shared_ptr<Signal> reached_ = std::make_shared<Signal>();
  const std::shared_ptr<Signal> open_ = std::make_shared<Signal>();
};

class JobManagerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    SetLogSink([](LogSeverity, absl::string_view) {});
  }

  JobManagerTest() {
    MakeCheckpoint(dir_.Join("data/source"), kNumFiles, 1 << 20);
    Start();
  }

  void Start() {
    server_.reset();
    server_ = std::make_unique<JobServer>(dir_.path(), settings_);
  }

  std::string Files() { return ListFiles(server_->data("")); }

  std::string Submit(absl::string_view destination) {
    const auto operation = server_->Convert(server_->Request(destination));
    EXPECT_OK(operation);
    return operation.ok() ? operation->name() : "";
  }

  JobState StateOf(const std::string& name) {
    const auto operation = server_->Get(name);
    EXPECT_OK(operation);
    return MetadataOf(*operation).state();
  }

  void ExpectWhole(absl::string_view destination) {
    EXPECT_OK(CompareCheckpoints(server_->data("source"),
                                 server_->data(destination)));
  }

  const TempDir dir_;
  JobServer::Settings settings_;
  std::unique_ptr<JobServer> server_;
};

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
  EXPECT_EQ(ReasonOf(ErrorOf(*ended)), "CHECKPOINT_NOT_FOUND");
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
  EXPECT_EQ(ReasonOf(reused), "REQUEST_ID_REUSED");
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
  EXPECT_EQ(ReasonOf(in_use), "DESTINATION_IN_USE");
  EXPECT_EQ(ReasonMetadataOf(in_use, "name"), first);
  EXPECT_EQ(PlaceOf(in_use).path, server_->data("out"));
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

TEST_F(JobManagerTest, CancelsAJobInTheQueue) {
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

TEST_F(JobManagerTest, CancelsAJobThatWaitsForMemory) {
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

class CancelTest : public JobManagerTest,
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
  EXPECT_GT(RetryAfterOf(refused.status()), 0);
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

TEST_F(JobManagerTest, ForgetsTheOldestThatHaveEnded) {
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

TEST_F(JobManagerTest, AClientsManyJobsLeaveThoseOfOthers) {
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

TEST_F(JobManagerTest, AnEndThatTheJournalCannotTakeIsNotToldBefore) {
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

TEST_F(JobManagerTest, AJobThatEndsTheServerEachTimeIsGivenUp) {
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
                       HasSubstr("does not try it again")));
  // Other jobs run.
  std::filesystem::remove_all(server_->data("out"));
  EXPECT_OK(ErrorOf(*server_->Wait(Submit("out"))));
}

TEST_F(JobManagerTest, ARestartGoesOnWithEveryJob) {
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

TEST_F(JobManagerTest, WhatIsCancelledAfterARestartLeavesNothing) {
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

TEST_F(JobManagerTest, WhatCannotRunAfterARestartLeavesNothing) {
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

TEST_F(JobManagerTest, TwoHundredJobsAtOnceStayWithinTheCaps) {
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

TEST_F(JobManagerTest, TakesNothingMoreWhileItDrains) {
  server_->manager().Drain(absl::InfinitePast());
  const auto refused = server_->Convert(server_->Request("out"));
  EXPECT_THAT(refused.status(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_GT(RetryAfterOf(refused.status()), 0);
  auto plan = server_->Request("out");
  plan.mutable_options()->set_validate_only(true);
  EXPECT_THAT(server_->Convert(plan).status(),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(JobManagerTest, ADrainWaitsForWhatRuns) {
  Gate gate(*server_, "Create", "out/__3_0");
  const std::string name = Submit("out");
  gate.WaitUntilReached();
  gate.OpenWhenDraining(name);
  server_->manager().Drain(absl::InfiniteFuture());
  EXPECT_EQ(StateOf(name), JobMetadata::SUCCEEDED);
  ExpectWhole("out");
}

TEST_F(JobManagerTest, ADrainMayBeCutShortByAnother) {
  Gate gate(*server_, "Create", "out/__3_0");
  const std::string name = Submit("out");
  gate.WaitUntilReached();
  const auto draining = std::make_shared<Signal>();
  ASSERT_OK(server_->manager().Watch(Client("anonymous", {}), name,
                                     [draining] { draining->Give(); }));
  std::thread patient(
      [&] { server_->manager().Drain(absl::InfiniteFuture()); });
  draining->Wait();
  // Opens the gate when it has begun.
  std::vector<std::thread> hasty;
  gate.OpenWhenDraining(name);
  for (int i = 0; i < 4; ++i) {
    hasty.emplace_back([&] { server_->manager().Drain(absl::InfinitePast()); });
  }
  for (std::thread& thread : hasty) thread.join();
  patient.join();
  EXPECT_EQ(server_->manager().num_running(), 0u);
  EXPECT_EQ(server_->budget().used_bytes(), 0u);
  Start();
  EXPECT_OK(ErrorOf(*server_->Wait(name)));
  ExpectWhole("out");
}

TEST_F(JobManagerTest, ADrainGivesMemoryBackThatIsGrantedMeanwhile) {
  settings_.hold_memory = true;
  Start();
  const std::string name = Submit("out");
  server_->manager().Drain(absl::InfinitePast());
  server_->ReleaseMemory();
  EXPECT_EQ(server_->budget().num_waiting(), 0u);
  EXPECT_EQ(server_->budget().used_bytes(), 0u);
  settings_.hold_memory = false;
  Start();
  EXPECT_OK(ErrorOf(*server_->Wait(name)));
}

}  // namespace
}  // namespace dcp::server
