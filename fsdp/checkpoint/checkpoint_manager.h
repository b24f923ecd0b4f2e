// SPDX-License-Identifier: Apache-2.0
// CheckpointManager: a training run's checkpoints "step-<N>" in one directory,
// or below one name in an object store. It decides when to save, which steps to
// keep and where to resume. For the thread that trains; all ranks make the same
// calls.
//
//   fsdp::CheckpointManager manager(dir, {.save_every = 500, .keep_last = 3});
//   int64_t step = manager.resume(state)->value_or(0);
//   for (; step < num_steps; ++step) {
//     ... forward, backward ...
//     manager.before_optimizer_step();   // a save in flight has its copy
//     optimizer.step();
//     if (manager.should_save(step + 1)) manager.save(step + 1, make_state());
//     if (manager.should_exit()) break;
//   }
//   manager.finish();
#ifndef FSDP_CHECKPOINT_CHECKPOINT_MANAGER_H_
#define FSDP_CHECKPOINT_CHECKPOINT_MANAGER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/checkpoint/async_saver.h"
#include "fsdp/checkpoint/save_and_load.h"

namespace fsdp {

struct CheckpointManagerOptions {
  int64_t save_every = 0;  // steps; 0: only when asked
  int64_t keep_last = 0;   // how many newest steps; 0: all
  int64_t keep_every = 0;  // also multiples of this; 0: none
  bool async = true;
  // SIGTERM (pre-emption) makes should_save and should_exit true on all ranks
  // at the next step.
  bool save_on_sigterm = true;
  AsyncSaver::Options saver = {};
  // Receives a line for each checkpoint that is skipped or removed, on rank 0,
  // possibly on the thread that saves. Default: standard error.
  std::function<void(const std::string&)> log = {};
};

class CheckpointManager {
 public:
  CheckpointManager(std::string directory, CheckpointManagerOptions options);
  // Waits for the save in flight.
  ~CheckpointManager();
  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;

  // Whether a save is due after `step` steps. Collective when save_on_sigterm
  // is set: ranks agree on a signal.
  absl::StatusOr<bool> should_save(int64_t step);
  // Whether SIGTERM asked the job to end; check it after the save.
  bool should_exit() const;

  // Starts (async) or makes the checkpoint for `step`, and creates the
  // directory if it is missing. Steps beyond keep_last and keep_every, and
  // older ones that a crash left unfinished, are removed once a newer one is
  // durable, never before; unfinished ones in an object store stay (see
  // dcp/checkpoint/destination/step_directories.h). An earlier save's error is
  // returned here, once.
  absl::Status save(int64_t step, const StateDict& state);
  // Waits until the save in flight has copied the state.
  absl::Status before_optimizer_step();
  // Waits until every save that was started is durable.
  absl::Status finish();

  // The newest complete step; incomplete ones are skipped with a message.
  // Absent when there is none. Collective.
  absl::StatusOr<std::optional<int64_t>> latest();
  // Loads the latest, if there is one. Where saves are due and `async` is set,
  // it also prepares the memory for the first one, as AsyncSaver::prepare does.
  // Collective.
  absl::StatusOr<std::optional<int64_t>> resume(
      StateDict& state, const TorchLoadOptions& options = {});

  std::string path_of(int64_t step) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_CHECKPOINT_MANAGER_H_
