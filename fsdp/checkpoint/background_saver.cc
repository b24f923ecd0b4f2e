// A save goes through two threads:
//   1. the thread that trains waits for the previous save, flattens the state,
//      pickles its plain values and records where its streams are
//   2. the thread of the save runs the core's Save, whose copies are what
//      wait_staged waits for, and then writes
// The thread of a save alone talks through coordinator_ while it lives. All
// ranks see the same outcome of a save, the core's, so that reporting it later
// needs the other ranks only if some may have asked for it and others not.
// Tested by tests/fsdp/checkpoint/async_saver_test.cc.
#include "fsdp/checkpoint/background_saver.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "fsdp/checkpoint/source/default_file_system.h"
#include "fsdp/checkpoint/source/open_source.h"
#include "fsdp/checkpoint/state/tensor_io.h"

namespace fsdp {

void BackgroundSave::SetStaged() {
  absl::MutexLock lock(&mutex_);
  staged_ = true;
}

void BackgroundSave::SetDone(absl::Status outcome) {
  absl::MutexLock lock(&mutex_);
  status_ = std::move(outcome);
  staged_ = true;
  done_ = true;
}

void BackgroundSave::AwaitStaged() {
  absl::MutexLock lock(&mutex_, absl::Condition(&staged_));
}

absl::Status BackgroundSave::TellOutcome() {
  absl::MutexLock lock(&mutex_, absl::Condition(&done_));
  was_told_ = true;
  return status_;
}

absl::Status BackgroundSave::UntoldFailure() {
  absl::MutexLock lock(&mutex_);
  return was_told_ ? absl::OkStatus() : status_;
}

bool BackgroundSave::done() const {
  absl::MutexLock lock(&mutex_);
  return done_;
}

bool BackgroundSave::ok() const {
  absl::MutexLock lock(&mutex_);
  return done_ && status_.ok();
}

BackgroundSaver::BackgroundSaver(const AsyncSaverOptions& options)
    : options_(options),
      fs_(FileSystemOr(options.file_system)),
      plan_cache_(std::make_unique<dcp::SavePlanCache>()) {}

BackgroundSaver::~BackgroundSaver() {
  Join();
  if (latest_ == nullptr) return;
  const absl::Status untold = latest_->UntoldFailure();
  if (untold.ok()) return;
  DCP_LOG(kError) << "event=save_failed path=" << latest_->path()
                  << " error=" << untold.message();
}

void BackgroundSaver::Join() {
  if (thread_.joinable()) thread_.join();
}

absl::Status BackgroundSaver::ReportEarlierFailure() {
  if (latest_ == nullptr) return absl::OkStatus();
  const std::shared_ptr<BackgroundSave> earlier = std::move(latest_);
  if (earlier->ok()) return absl::OkStatus();
  // The save failed on all ranks, so all of them get here.
  return dcp::Agree(*coordinator_,
                    dcp::Annotate(earlier->UntoldFailure(),
                                  "the previous save, to ", earlier->path()));
}

absl::StatusOr<std::shared_ptr<BackgroundSave>> BackgroundSaver::Save(
    const StateDict& state, const std::string& path, absl::Status ready,
    std::function<void()> on_durable) {
  DCP_RETURN_IF_ERROR(RefuseDaemon(path, "a save"));
  DCP_RETURN_IF_ERROR(RefuseFile(path));
  Join();
  if (coordinator_ == nullptr) {
    DCP_ASSIGN_OR_RETURN(coordinator_,
                         ProcessGroupCoordinator::Make(options_.process_group,
                                                       "checkpoint (async)"));
  }
  DCP_RETURN_IF_ERROR(ReportEarlierFailure());
  std::unique_ptr<SaveSources> sources =
      ready.ok() ? MakeSaveSources(state, coordinator_->num_ranks())
                 : SaveSources::Failed(std::move(ready));
  on_durable_ = std::move(on_durable);
  latest_ = std::make_shared<BackgroundSave>(path);
  thread_ = std::thread(
      [this, save = latest_, sources = std::move(sources)]() mutable {
        Run(*save, std::move(sources));
      });
  return latest_;
}

void BackgroundSaver::Run(BackgroundSave& save,
                          std::unique_ptr<SaveSources> sources) {
  absl::Status saved = SaveState(save, *sources);
  // Releases tensors that only this save kept before anyone hears that it is
  // over.
  sources.reset();
  if (saved.ok() && on_durable_) on_durable_();
  save.SetDone(std::move(saved));
}

absl::Status BackgroundSaver::SaveState(BackgroundSave& save,
                                        const SaveSources& sources) {
  DCP_ASSIGN_OR_RETURN(dcp::BlockPool * pool, Pool(save.path(), sources));
  return dcp::Save(fs_, save.path(), sources.state, *coordinator_,
                   {.overwrite = options_.overwrite,
                    .direct = options_.direct,
                    .pool = pool,
                    .plan_cache = plan_cache_.get(),
                    .on_staged = [&save] { save.SetStaged(); },
                    .stop = save.stop_token()});
}

absl::StatusOr<dcp::BlockPool*> BackgroundSaver::Pool(
    absl::string_view path, const SaveSources& sources) {
  DCP_ASSIGN_OR_RETURN(
      const uint64_t block_bytes,
      dcp::BlockBytesFor(fs_.TraitsOf(path), sources.share_bytes));
  // A save on a disk may be followed by one in an object store, which needs
  // larger blocks.
  if (pool_ != nullptr && pool_->block_bytes() < block_bytes) pool_.reset();
  if (pool_ == nullptr) {
    const uint64_t bytes = options_.staging_bytes != 0 ? options_.staging_bytes
                                                       : sources.share_bytes;
    const uint64_t num_blocks = (bytes + block_bytes - 1) / block_bytes;
    pool_ = std::make_unique<dcp::BlockPool>(
        std::max(num_blocks, dcp::kMinBlocks), block_bytes, StagingMemory());
  }
  return pool_.get();
}

}  // namespace fsdp
