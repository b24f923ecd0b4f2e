// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/checkpoint_manager.h"

#include <iostream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/step_directories.h"
#include "fsdp/checkpoint/background_saver.h"
#include "fsdp/checkpoint/preemption.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"
#include "fsdp/checkpoint/source/default_file_system.h"
#include "fsdp/checkpoint/source/open_source.h"

namespace fsdp {

struct CheckpointManager::Impl {
  Impl(std::string dir, CheckpointManagerOptions opts)
      : directory(std::move(dir)),
        options(std::move(opts)),
        fs(FileSystemOr(options.saver.file_system)),
        saver(options.saver) {
    if (options.save_on_sigterm) notice.emplace();
    if (!options.log) {
      options.log = [](const std::string& text) {
        std::cerr << text << std::endl;
      };
    }
  }

  // The coordinator for the thread that trains; the saver has another one.
  // Every call that needs the directory begins with this.
  absl::StatusOr<ProcessGroupCoordinator*> Coordinate() {
    DCP_RETURN_IF_ERROR(RefuseDaemon(directory, "a checkpoint manager"));
    if (coordinator == nullptr) {
      DCP_ASSIGN_OR_RETURN(
          coordinator, ProcessGroupCoordinator::Make(
                           options.saver.process_group, "checkpoint manager"));
    }
    return coordinator.get();
  }

  // Rank 0's part of latest(); -1 without one.
  absl::StatusOr<int64_t> FindLatest() {
    DCP_ASSIGN_OR_RETURN(const std::optional<int64_t> step,
                         dcp::NewestWholeStep(fs, directory, options.log));
    return step.value_or(-1);
  }

  // Called on the thread that saves.
  void OnDurable(int64_t step) {
    dcp::RemoveOldSteps(
        fs, directory, step,
        {.keep_last = options.keep_last, .keep_every = options.keep_every},
        options.log);
  }

  const std::string directory;
  CheckpointManagerOptions options;
  dcp::FileSystem& fs;
  std::optional<PreemptionNotice> notice;
  bool exits = false;  // the ranks have agreed on it
  std::unique_ptr<ProcessGroupCoordinator> coordinator;
  std::shared_ptr<BackgroundSave> last;  // shared with the saver; or null
  // The last member, because the destructor waits for a save, which uses the
  // others.
  BackgroundSaver saver;
};

CheckpointManager::CheckpointManager(std::string directory,
                                     CheckpointManagerOptions options)
    : impl_(std::make_unique<Impl>(std::move(directory), std::move(options))) {}

CheckpointManager::~CheckpointManager() = default;

absl::StatusOr<bool> CheckpointManager::should_save(int64_t step) {
  Impl& impl = *impl_;
  if (impl.notice.has_value() && !impl.exits) {
    DCP_ASSIGN_OR_RETURN(ProcessGroupCoordinator * coordinator,
                         impl.Coordinate());
    DCP_ASSIGN_OR_RETURN(impl.exits, coordinator->Any(impl.notice->came()));
  }
  const int64_t every = impl.options.save_every;
  return impl.exits || (every > 0 && step > 0 && step % every == 0);
}

bool CheckpointManager::should_exit() const { return impl_->exits; }

absl::Status CheckpointManager::save(int64_t step, const StateDict& state) {
  Impl& impl = *impl_;
  DCP_ASSIGN_OR_RETURN(ProcessGroupCoordinator * coordinator,
                       impl.Coordinate());
  const bool is_first = coordinator->rank() == 0;
  absl::Status ready = is_first ? dcp::MakeDirectories(impl.fs, impl.directory)
                                : absl::OkStatus();
  std::function<void()> on_durable;
  if (is_first) on_durable = [&impl, step] { impl.OnDurable(step); };
  DCP_ASSIGN_OR_RETURN(impl.last,
                       impl.saver.Save(state, path_of(step), std::move(ready),
                                       std::move(on_durable)));
  return impl.options.async ? absl::OkStatus() : impl.last->AwaitOutcome();
}

absl::Status CheckpointManager::before_optimizer_step() {
  if (impl_->last != nullptr) impl_->last->AwaitStaged();
  return absl::OkStatus();
}

absl::Status CheckpointManager::finish() {
  return impl_->last != nullptr ? impl_->last->AwaitOutcome()
                                : absl::OkStatus();
}

absl::StatusOr<std::optional<int64_t>> CheckpointManager::latest() {
  Impl& impl = *impl_;
  impl.saver.Join();  // a directory in progress is not a torn one
  DCP_ASSIGN_OR_RETURN(ProcessGroupCoordinator * coordinator,
                       impl.Coordinate());
  absl::StatusOr<int64_t> found = -1;
  if (coordinator->rank() == 0) found = impl.FindLatest();
  DCP_RETURN_IF_ERROR(dcp::Agree(*coordinator, found.status()));
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       coordinator->Broadcast(absl::StrCat(*found)));
  int64_t step = -1;
  if (!absl::SimpleAtoi(text, &step)) {
    return absl::DataLossError(absl::StrCat("rank 0 sent no step: ", text));
  }
  return step < 0 ? std::optional<int64_t>() : step;
}

absl::StatusOr<std::optional<int64_t>> CheckpointManager::resume(
    StateDict& state, const TorchLoadOptions& options) {
  DCP_ASSIGN_OR_RETURN(const std::optional<int64_t> step, latest());
  if (impl_->options.async && impl_->options.save_every > 0) {
    // The first save reports errors, on all ranks.
    impl_->saver.Prepare(state, path_of(0)).IgnoreError();
  }
  if (!step.has_value()) return step;
  TorchLoadOptions with_group = options;
  if (!with_group.process_group) {
    with_group.process_group = impl_->options.saver.process_group;
  }
  if (with_group.file_system == nullptr) {
    with_group.file_system = impl_->options.saver.file_system;
  }
  DCP_RETURN_IF_ERROR(load(state, path_of(*step), with_group));
  return step;
}

std::string CheckpointManager::path_of(int64_t step) const {
  return dcp::StepPath(impl_->directory, step);
}

}  // namespace fsdp
