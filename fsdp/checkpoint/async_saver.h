// SPDX-License-Identifier: Apache-2.0
// Saving while training goes on. For the thread that trains; all ranks make the
// same calls in the same order; an error on one rank is returned on all.
//
// A save has the values at the call, whatever follows it: an operator that
// writes into a tensor of the state waits, on the operator's thread, until all
// tensors have been copied. The call itself copies tensors that are not cut and
// have at most 64 KiB. Only code that writes through a raw pointer must call
// wait_staged first.
#ifndef FSDP_CHECKPOINT_ASYNC_SAVER_H_
#define FSDP_CHECKPOINT_ASYNC_SAVER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/checkpoint/async_saver_options.h"
#include "fsdp/checkpoint/save_report.h"
#include "fsdp/checkpoint/state/state_value.h"

namespace fsdp {

class BackgroundSave;
class BackgroundSaver;

// A save under way. Thread-safe.
class SaveHandle {
 public:
  // Blocks until the state has been copied, as the first operator that writes
  // into it would. OK even if the save has already failed: wait() and the next
  // save report the failure, on all ranks.
  absl::Status wait_staged();
  // Blocks until the checkpoint is durable on all ranks, or has failed on all.
  absl::Status wait();
  // Whether the save has ended.
  bool done() const;
  // Whether the save succeeded; false while it runs.
  bool ok() const;
  // The save's cost on this rank so far; complete when done().
  SaveReport report() const;
  // Abandons the save as soon as possible; wait() then returns Cancelled.
  void request_stop();

  explicit SaveHandle(std::shared_ptr<BackgroundSave> save)
      : save_(std::move(save)) {}

 private:
  std::shared_ptr<BackgroundSave> save_;  // shared with the thread that saves
};

// Saves in the background. It owns the staging memory, a process group, and the
// last save's plan. The memory is allocated and touched once (by prepare, or
// else the first save) and reused (pinned if there is an accelerator). The plan
// stays valid while names, shapes and placements stay the same. One save runs
// at a time: a second one first waits for the one before. The destructor waits
// for the save in flight.
class AsyncSaver {
 public:
  using Options = AsyncSaverOptions;

  AsyncSaver();
  explicit AsyncSaver(const Options& options);
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Allocates (and pins) the staging memory for states like this, saved to
  // paths like this, and touches it, on a thread with the lowest priority, so
  // that the first save does not wait for the kernel to clear it. Reads no
  // tensor and returns at once. A save that comes during the allocation waits
  // for it; a save that comes while the memory is touched does not. Calls after
  // the first save do nothing. If the state has an error or the system lacks
  // memory, the save returns that error on all ranks. Collective.
  absl::Status prepare(const StateDict& state, const std::string& path);

  // Waits for the previous save, records the state and returns; copying and
  // writing continue in the background. wait() reports every error in the
  // state, on all ranks. If the previous save failed and some rank has not
  // waited for it, that error is returned here, once, and nothing is saved.
  absl::StatusOr<SaveHandle> save(const StateDict& state,
                                  const std::string& path);

 private:
  std::unique_ptr<BackgroundSaver> saver_;
};

// Calls AsyncSaver::save on a saver that the process keeps.
absl::StatusOr<SaveHandle> async_save(const StateDict& state,
                                      const std::string& path);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_ASYNC_SAVER_H_
