// SPDX-License-Identifier: Apache-2.0
// A save goes through two threads:
//   1. The thread that trains waits for the previous save, flattens the state,
//      pickles plain values, copies small tensors, records the positions of the
//      streams and watches the other tensors: from now on an operator that
//      writes into one of them first waits.
//   2. The saving thread runs the core's Save. wait_staged and such an operator
//      wait for the copies that it makes. It then ends the watch and writes.
// Only the saving thread talks through coordinator_ while it lives. All ranks
// see the same outcome, the core's, so reporting it later needs the other ranks
// only if some may have asked for it and others not.
// Tested by tests/fsdp/checkpoint/async_saver_test.cc.
#include "fsdp/checkpoint/background_saver.h"

#include <algorithm>
#include <utility>

#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "fsdp/checkpoint/source/default_file_system.h"
#include "fsdp/checkpoint/source/open_source.h"

namespace fsdp {
void BackgroundSave::SetStaged() {
  absl::MutexLock lock(&mutex_);
  EndStaging();
  report_.staged_seconds = Elapsed();
}

void BackgroundSave::SetDone(absl::Status outcome) {
  absl::MutexLock lock(&mutex_);
  EndStaging();
  status_ = std::move(outcome);
  done_ = true;
  report_.total_seconds = Elapsed();
}

void BackgroundSave::EndStaging() {
  report_.stalled_seconds += StallSoFar();
  stall_began_ = absl::InfiniteDuration();
  staged_ = true;
}

double BackgroundSave::StallSoFar() const {
  if (stall_began_ == absl::InfiniteDuration()) return 0;
  return absl::ToDoubleSeconds(dcp::SteadyNow() - stall_began_);
}

void BackgroundSave::SetStarted() {
  absl::MutexLock lock(&mutex_);
  report_.stalled_seconds = Elapsed();
}

void BackgroundSave::AwaitStaged() {
  {
    absl::MutexLock lock(&mutex_);
    if (staged_) return;
    stall_began_ = std::min(stall_began_, dcp::SteadyNow());
  }
  absl::MutexLock lock(&mutex_, absl::Condition(&staged_));
}

absl::Status BackgroundSave::AwaitOutcome() {
  absl::MutexLock lock(&mutex_, absl::Condition(&done_));
  was_reported_ = true;
  return status_;
}

absl::Status BackgroundSave::UnreportedFailure() {
  absl::MutexLock lock(&mutex_);
  return was_reported_ ? absl::OkStatus() : status_;
}

bool BackgroundSave::done() const {
  absl::MutexLock lock(&mutex_);
  return done_;
}

bool BackgroundSave::ok() const {
  absl::MutexLock lock(&mutex_);
  return done_ && status_.ok();
}

SaveReport BackgroundSave::report() const {
  absl::MutexLock lock(&mutex_);
  SaveReport report = report_;
  report.stalled_seconds += StallSoFar();
  report.bytes_written = stats_.bytes_written.load(std::memory_order_relaxed);
  return report;
}

BackgroundSaver::BackgroundSaver(const AsyncSaverOptions& options)
    : options_(options),
      fs_(FileSystemOr(options.file_system)),
      pool_(fs_, options.staging_bytes),
      plan_cache_(std::make_unique<dcp::SavePlanCache>()) {}

BackgroundSaver::~BackgroundSaver() {
  Join();
  if (latest_ == nullptr) return;
  const absl::Status untold = latest_->UnreportedFailure();
  if (untold.ok()) return;
  DCP_LOG(kError) << "event=save_failed path=" << latest_->path()
                  << " error=" << untold.message();
}

void BackgroundSaver::Join() {
  thread_.reset();  // joins
}

absl::Status BackgroundSaver::ReportEarlierFailure() {
  if (latest_ == nullptr) return absl::OkStatus();
  const std::shared_ptr<BackgroundSave> earlier = std::move(latest_);
  if (earlier->ok()) return absl::OkStatus();
  // The save failed on all ranks, so all of them get here.
  return dcp::Agree(*coordinator_,
                    dcp::Annotate(earlier->UnreportedFailure(),
                                  "the previous save, to ", earlier->path()));
}

absl::Status BackgroundSaver::Meet() {
  if (coordinator_ != nullptr) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(coordinator_,
                       ProcessGroupCoordinator::Make(options_.process_group,
                                                     "checkpoint (async)"));
  return absl::OkStatus();
}

absl::Status BackgroundSaver::Prepare(const StateDict& state,
                                      const std::string& path) {
  DCP_RETURN_IF_ERROR(RefuseDaemon(path, "a save"));
  DCP_RETURN_IF_ERROR(RefuseFile(path));
  if (latest_ != nullptr) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(Meet());
  const std::unique_ptr<SaveSources> sources =
      MakeSaveSources(state, coordinator_->num_ranks());
  if (sources->state.status.ok()) pool_.Prepare(path, sources->share_bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<BackgroundSave>> BackgroundSaver::Save(
    const StateDict& state, const std::string& path, absl::Status ready,
    std::function<void()> on_durable) {
  DCP_RETURN_IF_ERROR(RefuseDaemon(path, "a save"));
  DCP_RETURN_IF_ERROR(RefuseFile(path));
  const absl::Duration began = dcp::SteadyNow();
  Join();
  pool_.StopPreparing();
  DCP_RETURN_IF_ERROR(Meet());
  DCP_RETURN_IF_ERROR(ReportEarlierFailure());
  sources_ = ready.ok() ? MakeSaveSources(state, coordinator_->num_ranks(),
                                          /*copies_small=*/true)
                        : SaveSources::Failed(std::move(ready));
  on_durable_ = std::move(on_durable);
  latest_ = std::make_shared<BackgroundSave>(path, began);
  watch_ = std::make_unique<WriteWatch>(
      sources_->tensors(), [save = latest_] { save->AwaitStaged(); });
  absl::StatusOr<dcp::Thread> thread = dcp::Thread::Start(
      [this, save = latest_] { Run(*save, options_.yield_to_training); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    // The other ranks expect this rank to take part.
    DCP_LOG(kWarning) << "event=save_waits path=" << path
                      << " why=" << thread.status().message();
    Run(*latest_, /*yields=*/false);
  }
  latest_->SetStarted();
  return latest_;
}

void BackgroundSaver::Run(BackgroundSave& save, bool yields) {
  absl::Status saved = SaveState(save, yields);
  // Releases tensors that only this save kept, before anyone is told that it
  // has ended.
  watch_.reset();
  sources_.reset();
  if (saved.ok() && on_durable_) on_durable_();
  save.SetDone(std::move(saved));
}

absl::Status BackgroundSaver::SaveState(BackgroundSave& save, bool yields) {
  const absl::StatusOr<dcp::BlockPool*> pool =
      pool_.Get(save.path(), sources_->share_bytes);
  // The other ranks wait for this one to tell them.
  sources_->state.status.Update(pool.status());
  const auto on_staged = [this, &save, yields] {
    save.SetStaged();
    watch_.reset();
    // Either nobody waits for the remaining work, or training has paused.
    if (yields) YieldToTraining();
  };
  return dcp::Save(fs_, save.path(), sources_->state, *coordinator_,
                   {.overwrite = options_.overwrite,
                    .direct = options_.direct,
                    .pool = pool.value_or(nullptr),
                    .max_rate = options_.max_rate,
                    .plan_cache = plan_cache_.get(),
                    .on_staged = on_staged,
                    .stop = save.stop_token(),
                    .stats = &save.stats()});
}

}  // namespace fsdp
