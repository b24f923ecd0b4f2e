// SPDX-License-Identifier: Apache-2.0
// A run's files: steps in --checkpoint-dir, where it resumes from the newest,
// whatever number of ranks saved it, and the model that it writes at the end,
// because of --export or the config. For the thread that trains; all ranks make
// the same calls, and an error on any rank reaches all.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_CHECKPOINTS_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_CHECKPOINTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/averaging/averaged_model.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/examples/train_llama/config.h"
#include "fsdp/examples/train_llama/model.h"
#include "fsdp/examples/train_llama/progress.h"
#include "fsdp/prepare/prepare.h"
#include "torch/optim/optimizer.h"

namespace llama {

// The state that is saved and restored, in addition to the numbers in `config`.
// All of it must outlive Checkpoints.
struct Run {
  const Config& config;
  int64_t data_bytes;  // the text's size
  Llama& model;
  torch::optim::Optimizer& optimizer;
  Progress& progress;
  fsdp::Prepared& training;
  // This object owns it together with the state of a save. Null without an
  // average.
  std::shared_ptr<fsdp::optim::AveragedModel> average;
};

class Checkpoints {
 public:
  explicit Checkpoints(const Run& run);

  // Before the first step: resumes after the newest complete step. Returns
  // InvalidArgument, with all differences, if that step belongs to another
  // model, seed or data.
  absl::Status Begin();
  // Call it before parameters change: waits for a save that copies them while
  // the next step computes.
  absl::Status BeforeOptimizerStep();
  // Saves if this step is one to save.
  absl::Status AfterStep();
  // Whether SIGTERM has come and AfterStep has saved.
  bool should_stop() const;
  // After the last step: waits until everything is on disk, and exports.
  absl::Status Finish();

 private:
  absl::StatusOr<fsdp::StateDict> State();
  absl::Status CheckSame(const std::string& path) const;
  absl::Status Resume(const std::string& path, int64_t step);
  absl::Status Export(int64_t step);

  const Run run_;
  int64_t num_steps_at_begin_ = 0;
  fsdp::CheckpointManager* const manager_;  // for --checkpoint-dir, or null
};

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_CHECKPOINTS_H_
