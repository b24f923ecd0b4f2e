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

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
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
namespace {

constexpr int kLowestPriority = 19;
// No page is smaller. So many are touched between two looks at the stop token.
constexpr size_t kPageBytes = 4096;
constexpr size_t kStepBytes = size_t{4} << 20;

// Has the kernel provide every page, without slowing threads that train.
void Touch(std::span<uint8_t> memory, const std::stop_token& stop) {
  // Linux has a priority for each thread. It can only be lowered, which needs
  // no privilege, and the thread ends here.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);
  for (size_t begin = 0; begin < memory.size() && !stop.stop_requested();
       begin += kStepBytes) {
    const size_t end = std::min(begin + kStepBytes, memory.size());
    for (size_t at = begin; at < end; at += kPageBytes) {
      *const_cast<volatile uint8_t*>(&memory[at]) = 0;
    }
  }
}

}  // namespace

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
  if (latest_ != nullptr || is_pool_used_) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(Meet());
  if (toucher_.joinable()) {
    toucher_.request_stop();
    toucher_.join();
  }
  const std::unique_ptr<SaveSources> sources =
      MakeSaveSources(state, coordinator_->num_ranks());
  if (!sources->state.status.ok()) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(ResizePool(path, sources->share_bytes));
  toucher_ = std::jthread([memory = pool_->memory()](std::stop_token stop) {
    Touch(memory, stop);
  });
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<BackgroundSave>> BackgroundSaver::Save(
    const StateDict& state, const std::string& path, absl::Status ready,
    std::function<void()> on_durable) {
  DCP_RETURN_IF_ERROR(RefuseDaemon(path, "a save"));
  DCP_RETURN_IF_ERROR(RefuseFile(path));
  Join();
  toucher_.request_stop();
  DCP_RETURN_IF_ERROR(Meet());
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
  DCP_ASSIGN_OR_RETURN(dcp::BlockPool * pool,
                       Pool(save.path(), sources.share_bytes));
  return dcp::Save(fs_, save.path(), sources.state, *coordinator_,
                   {.overwrite = options_.overwrite,
                    .direct = options_.direct,
                    .pool = pool,
                    .plan_cache = plan_cache_.get(),
                    .on_staged = [&save] { save.SetStaged(); },
                    .stop = save.stop_token()});
}

// For the thread that saves.
absl::StatusOr<dcp::BlockPool*> BackgroundSaver::Pool(absl::string_view path,
                                                      uint64_t share_bytes) {
  if (toucher_.joinable()) toucher_.join();
  DCP_RETURN_IF_ERROR(ResizePool(path, share_bytes));
  is_pool_used_ = true;
  return pool_.get();
}

absl::Status BackgroundSaver::ResizePool(absl::string_view path,
                                         uint64_t share_bytes) {
  DCP_ASSIGN_OR_RETURN(const uint64_t block_bytes,
                       dcp::BlockBytesFor(fs_.TraitsOf(path), share_bytes));
  const uint64_t bytes =
      options_.staging_bytes != 0 ? options_.staging_bytes : share_bytes;
  const uint64_t num_blocks =
      std::max((bytes + block_bytes - 1) / block_bytes, dcp::kMinBlocks);
  // A save on a disk may be followed by one in an object store, which needs
  // larger blocks. What was prepared for another state may be too small.
  if (pool_ != nullptr &&
      (pool_->block_bytes() < block_bytes ||
       (!is_pool_used_ && pool_->num_blocks() < num_blocks))) {
    pool_.reset();
  }
  if (pool_ == nullptr) {
    pool_ = std::make_unique<dcp::BlockPool>(num_blocks, block_bytes,
                                             StagingMemory());
  }
  return absl::OkStatus();
}

}  // namespace fsdp
