// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/async_saver.h"

#include "dcp/base/status.h"
#include "fsdp/checkpoint/background_saver.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

absl::Status SaveHandle::wait_staged() {
  save_->AwaitStaged();
  return absl::OkStatus();
}

absl::Status SaveHandle::wait() { return save_->AwaitOutcome(); }

bool SaveHandle::done() const { return save_->done(); }

bool SaveHandle::ok() const { return save_->ok(); }

SaveReport SaveHandle::report() const { return save_->report(); }

void SaveHandle::request_stop() { save_->RequestStop(); }

AsyncSaver::AsyncSaver() : AsyncSaver(Options()) {}
AsyncSaver::AsyncSaver(const Options& options)
    : saver_(std::make_unique<BackgroundSaver>(options)) {}
AsyncSaver::~AsyncSaver() = default;

absl::Status AsyncSaver::prepare(const StateDict& state,
                                 const std::string& path) {
  return saver_->Prepare(state, path);
}

absl::StatusOr<SaveHandle> AsyncSaver::save(const StateDict& state,
                                            const std::string& path) {
  DCP_ASSIGN_OR_RETURN(std::shared_ptr<BackgroundSave> save,
                       saver_->Save(state, path));
  return SaveHandle(std::move(save));
}

absl::StatusOr<SaveHandle> async_save(const StateDict& state,
                                      const std::string& path) {
  // The process's saver, as long as the job's group stays the same. When the
  // process ends, the destructor waits for the save in flight.
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
