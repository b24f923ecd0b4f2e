// SPDX-License-Identifier: Apache-2.0
// JobFixture: a JobServer with a checkpoint to convert. Gate: holds a job at a
// chosen point. For tests.
#ifndef TESTS_SERVER_JOBS_JOB_FIXTURE_H_
#define TESTS_SERVER_JOBS_JOB_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "dcp/base/log.h"
#include "gtest/gtest.h"
#include "server/access/access.h"
#include "server/jobs/job.h"
#include "server/jobs/job_manager.h"
#include "tests/server/jobs/job_server.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {

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

// The files of the checkpoint.
inline constexpr int64_t kNumFiles = 6;

class JobFixture : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    SetLogSink([](LogSeverity, absl::string_view) {});
  }

  JobFixture() {
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

  const testing::TempDir dir_;
  JobServer::Settings settings_;
  std::unique_ptr<JobServer> server_;
};

}  // namespace dcp::server

#endif  // TESTS_SERVER_JOBS_JOB_FIXTURE_H_
