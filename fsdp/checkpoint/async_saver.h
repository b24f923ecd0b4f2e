// SPDX-License-Identifier: Apache-2.0
// Saving while training goes on. For the thread that trains; all ranks make the
// same calls in the same order; an error on one rank is returned on all.
//
// A save has the values of the call, whatever follows it: an operator that
// writes into a tensor of the state waits until all of them have been copied,
// on its own thread. Tensors that are not cut and have at most 64 KiB are
// copied by the call. Only what writes by a raw pointer must call wait_staged
// first.
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
  // save report the failure, where all ranks learn of it.
  absl::Status wait_staged();
  // Blocks until the checkpoint is durable on all ranks, or has failed on all.
  absl::Status wait();
  // Whether it has ended.
  bool done() const;
  // Whether it ended well; false while it runs.
  bool ok() const;
  // What it has cost this rank so far; complete when done().
  SaveReport report() const;
  // Abandons the save as soon as possible; wait() then returns Cancelled.
  void request_stop();

  explicit SaveHandle(std::shared_ptr<BackgroundSave> save)
      : save_(std::move(save)) {}

 private:
  std::shared_ptr<BackgroundSave> save_;  // shared with the thread that saves
};

// Saves in the background. It owns the staging memory, which is allocated and
// touched once (by prepare, or else the first save) and reused (pinned if there
// is an accelerator), its own process group, and the plan of the last save,
// which stays valid while names, shapes and placements stay the same. It runs
// one save at a time: a second one first waits for the one before. Its
// destructor waits for the save in flight.
class AsyncSaver {
 public:
  using Options = AsyncSaverOptions;

  AsyncSaver();
  explicit AsyncSaver(const Options& options);
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Takes (and pins) the staging memory for states like this, saved to paths
  // like this, and touches it, on a thread of the lowest priority, so that the
  // first save does not wait for the kernel to clear it. Reads no tensor and
  // returns at once. A save that comes while it is being taken waits for that;
  // one that comes while it is being touched does not. Calls after the first
  // save do nothing. An error of the state, or memory that the system does not
  // provide, is left to the save, which returns it on all ranks. Collective.
  absl::Status prepare(const StateDict& state, const std::string& path);

  // Waits for the previous save, records the state and returns; copying and
  // writing continue in the background. wait() reports whatever is wrong with
  // the state, on all ranks. If the previous save failed and some rank has not
  // waited for it, its error is returned here, once, and nothing is saved.
  absl::StatusOr<SaveHandle> save(const StateDict& state,
                                  const std::string& path);

 private:
  std::unique_ptr<BackgroundSaver> saver_;
};

// AsyncSaver::save with a saver that the process keeps.
absl::StatusOr<SaveHandle> async_save(const StateDict& state,
                                      const std::string& path);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_ASYNC_SAVER_H_
