// A save goes through two threads:
//   1. the thread that trains waits for the save before, flattens the state,
//      pickles its plain values and records where its streams are
//   2. the thread of the save runs the core's Save, whose copies are what
//      wait_staged waits for, and then writes
// The thread of a save alone talks through coordinator_ while it lives. All
// ranks see the same outcome of a save, the core's, so that reporting it later
// needs the other ranks only if some may have asked for it and others not.
#include "fsdp/checkpoint/async_saver.h"

#include <algorithm>
#include <utility>

#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/save/save_plan_cache.h"
#include "fsdp/checkpoint/source/checkpoint_source.h"
#include "fsdp/checkpoint/state/tensor_io.h"

namespace fsdp {

dcp::FileSystem& FileSystemOr(dcp::FileSystem* file_system) {
  static auto* const posix = dcp::NewPosixFileSystem().release();
  return file_system != nullptr ? *file_system : *posix;
}

void SaveHandle::Impl::SetStaged() {
  absl::MutexLock lock(&mutex);
  staged = true;
}

void SaveHandle::Impl::SetDone(absl::Status outcome) {
  absl::MutexLock lock(&mutex);
  status = std::move(outcome);
  staged = true;
  done = true;
}

absl::Status SaveHandle::Impl::AwaitDone() {
  absl::MutexLock lock(&mutex, absl::Condition(&done));
  return status;
}

absl::Status SaveHandle::wait_staged() {
  absl::MutexLock lock(&impl_->mutex, absl::Condition(&impl_->staged));
  return absl::OkStatus();
}

absl::Status SaveHandle::wait() {
  absl::MutexLock lock(&impl_->mutex, absl::Condition(&impl_->done));
  impl_->was_told = true;
  return impl_->status;
}

bool SaveHandle::done() const {
  absl::MutexLock lock(&impl_->mutex);
  return impl_->done;
}

bool SaveHandle::ok() const {
  absl::MutexLock lock(&impl_->mutex);
  return impl_->done && impl_->status.ok();
}

void SaveHandle::request_stop() { impl_->stop.request_stop(); }

AsyncSaver::Impl::Impl(const Options& options)
    : options_(options),
      fs_(FileSystemOr(options.file_system)),
      plan_cache_(std::make_unique<dcp::SavePlanCache>()) {}

AsyncSaver::Impl::~Impl() {
  Join();
  if (latest_ == nullptr) return;
  absl::MutexLock lock(&latest_->mutex);
  if (latest_->status.ok() || latest_->was_told) return;
  DCP_LOG(kError) << "event=save_failed path=" << latest_->path
                  << " error=" << latest_->status.message();
}

void AsyncSaver::Impl::Join() {
  if (thread_.joinable()) thread_.join();
}

absl::Status AsyncSaver::Impl::ReportEarlierFailure() {
  if (latest_ == nullptr) return absl::OkStatus();
  const std::shared_ptr<SaveHandle::Impl> earlier = std::move(latest_);
  absl::MutexLock lock(&earlier->mutex);
  if (earlier->status.ok()) return absl::OkStatus();
  const absl::Status mine =
      earlier->was_told ? absl::OkStatus()
                        : dcp::Annotate(earlier->status, "the save before, to ",
                                        earlier->path);
  earlier->was_told = true;
  // It failed on all ranks, so all of them get here.
  return dcp::Agree(*coordinator_, mine);
}

absl::StatusOr<SaveHandle> AsyncSaver::Impl::Save(
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
  std::unique_ptr<HeldState> held =
      ready.ok() ? HoldState(state, coordinator_->num_ranks())
                 : HeldState::Failed(std::move(ready));
  on_durable_ = std::move(on_durable);
  latest_ = std::make_shared<SaveHandle::Impl>(path);
  thread_ =
      std::thread([this, handle = latest_, held = std::move(held)]() mutable {
        Run(*handle, std::move(held));
      });
  return SaveHandle(latest_);
}

void AsyncSaver::Impl::Run(SaveHandle::Impl& handle,
                           std::unique_ptr<HeldState> held) {
  absl::Status saved = SaveHeld(handle, *held);
  // Releases tensors that only this save kept before anyone hears that it is
  // over.
  held.reset();
  if (saved.ok() && on_durable_) on_durable_();
  handle.SetDone(std::move(saved));
}

absl::Status AsyncSaver::Impl::SaveHeld(SaveHandle::Impl& handle,
                                        const HeldState& held) {
  return dcp::Save(fs_, handle.path, held.state, *coordinator_,
                   {.overwrite = options_.overwrite,
                    .direct = options_.direct,
                    .pool = &Pool(held),
                    .plan_cache = plan_cache_.get(),
                    .on_staged = [&handle] { handle.SetStaged(); },
                    .stop = handle.stop.get_token()});
}

dcp::BlockPool& AsyncSaver::Impl::Pool(const HeldState& held) {
  if (pool_ == nullptr) {
    const uint64_t bytes =
        options_.staging_bytes != 0 ? options_.staging_bytes : held.share_bytes;
    const uint64_t num_blocks =
        (bytes + dcp::kBlockBytes - 1) / dcp::kBlockBytes;
    pool_ = std::make_unique<dcp::BlockPool>(
        std::max(num_blocks, dcp::kMinBlocks), StagingMemory());
  }
  return *pool_;
}

AsyncSaver::AsyncSaver() : AsyncSaver(Options()) {}
AsyncSaver::AsyncSaver(const Options& options)
    : impl_(std::make_unique<Impl>(options)) {}
AsyncSaver::~AsyncSaver() = default;

absl::StatusOr<SaveHandle> AsyncSaver::save(const StateDict& state,
                                            const std::string& path) {
  return impl_->Save(state, path);
}

absl::StatusOr<SaveHandle> async_save(const StateDict& state,
                                      const std::string& path) {
  // The saver of the process, as long as the job's group stays the same. Its
  // destructor, when the process ends, waits for the save in flight.
  static c10::weak_intrusive_ptr<c10d::ProcessGroup> of_group(
      c10::intrusive_ptr<c10d::ProcessGroup>{});
  static std::unique_ptr<AsyncSaver> saver;
  const ProcessGroup group = is_initialized() ? world_group() : nullptr;
  if (saver == nullptr || of_group.lock() != group) {
    saver = nullptr;
    of_group = c10::weak_intrusive_ptr<c10d::ProcessGroup>(group);
    saver = std::make_unique<AsyncSaver>();
  }
  return saver->save(state, path);
}

}  // namespace fsdp
