// SPDX-License-Identifier: Apache-2.0
// BackgroundSaver: the implementation of AsyncSaver and SaveHandle.
// checkpoint_manager uses it too, and adds work before and after a save.
#ifndef FSDP_CHECKPOINT_BACKGROUND_SAVER_H_
#define FSDP_CHECKPOINT_BACKGROUND_SAVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/steady_time.h"
#include "dcp/base/thread.h"
#include "dcp/checkpoint/save/save_plan_cache.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "fsdp/checkpoint/async_saver_options.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"
#include "fsdp/checkpoint/save_report.h"
#include "fsdp/checkpoint/staging_pool.h"
#include "fsdp/checkpoint/state/save_sources.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/engine/lazy/write_watch.h"

namespace fsdp {

// One save, shared by the thread that trains and the one that saves.
// Thread-safe.
class BackgroundSave {
 public:
  // `began` is the time at which save() was called.
  BackgroundSave(std::string path, absl::Duration began)
      : path_(std::move(path)), began_(began) {}

  const std::string& path() const { return path_; }
  bool done() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the save succeeded; false while it runs.
  bool ok() const ABSL_LOCKS_EXCLUDED(mutex_);
  SaveReport report() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks until the state has been copied, or the save has failed.
  void AwaitStaged() ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until the save has ended. From then on the caller knows the outcome.
  absl::Status AwaitOutcome() ABSL_LOCKS_EXCLUDED(mutex_);
  // For a save that has ended: the error, unless AwaitOutcome returned it.
  absl::Status UnreportedFailure() ABSL_LOCKS_EXCLUDED(mutex_);

  void RequestStop() { stop_.request_stop(); }
  std::stop_token stop_token() const { return stop_.get_token(); }

  // Called when save() returns: the time since `began` was a stall.
  void SetStarted() ABSL_LOCKS_EXCLUDED(mutex_);

  // For the thread that saves.
  dcp::TransferStats& stats() { return stats_; }
  void SetStaged() ABSL_LOCKS_EXCLUDED(mutex_);
  void SetDone(absl::Status outcome) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  double Elapsed() const {
    return absl::ToDoubleSeconds(dcp::SteadyNow() - began_);
  }
  // How long callers have waited so far for the state's copy.
  double StallSoFar() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndStaging() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const absl::Duration began_;
  std::stop_source stop_;
  dcp::TransferStats stats_;
  mutable absl::Mutex mutex_;
  bool staged_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_reported_ ABSL_GUARDED_BY(mutex_) =
      false;  // the caller has the outcome
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  // When the first waiting caller began to wait; infinite: nobody waits.
  absl::Duration stall_began_ ABSL_GUARDED_BY(mutex_) =
      absl::InfiniteDuration();
  // Without the bytes and the current stall.
  SaveReport report_ ABSL_GUARDED_BY(mutex_);
};

// For the thread that trains, except Run, which runs on the thread that saves.
class BackgroundSaver {
 public:
  explicit BackgroundSaver(const AsyncSaverOptions& options);
  ~BackgroundSaver();  // waits; logs a failure that was not reported
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  // As AsyncSaver::prepare.
  absl::Status Prepare(const StateDict& state, const std::string& path);
  // As AsyncSaver::save. If `ready` is not OK, the save fails with it on every
  // rank. `on_durable` is called on success, on the thread that saves. The
  // caller shares the save.
  absl::StatusOr<std::shared_ptr<BackgroundSave>> Save(
      const StateDict& state, const std::string& path,
      absl::Status ready = absl::OkStatus(),
      std::function<void()> on_durable = {});
  // Waits for the save in flight.
  void Join();

 private:
  absl::Status ReportEarlierFailure();
  // Saves the sources in sources_; `yields`: lowers this thread's priority once
  // all is copied.
  void Run(BackgroundSave& save, bool yields);
  absl::Status SaveState(BackgroundSave& save, bool yields);
  absl::Status Meet();

  const AsyncSaverOptions options_;
  dcp::FileSystem& fs_;
  std::unique_ptr<ProcessGroupCoordinator> coordinator_;
  StagingPool pool_;
  std::unique_ptr<dcp::SavePlanCache> plan_cache_;
  std::function<void()> on_durable_;
  std::shared_ptr<BackgroundSave> latest_;  // shared with the caller
  // For the save in flight; only the thread that saves uses them.
  std::unique_ptr<SaveSources> sources_;
  std::unique_ptr<WriteWatch> watch_;
  std::optional<dcp::Thread> thread_;
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_BACKGROUND_SAVER_H_
