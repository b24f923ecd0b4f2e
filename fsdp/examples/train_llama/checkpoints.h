// What a run has on disk: its steps in --checkpoint-dir, from the newest of
// which it goes on, whatever number of ranks saved it, and the model that is
// left in the end, of --export or because the config wants one. For the thread
// that trains; all ranks make the same calls, and an error is one of all.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_CHECKPOINTS_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_CHECKPOINTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/torch/state_value.h"
#include "fsdp/examples/train_llama/config.h"
#include "fsdp/examples/train_llama/model.h"
#include "fsdp/examples/train_llama/progress.h"
#include "fsdp/prepare/prepare.h"
#include "torch/optim/optimizer.h"

namespace llama {

// What is saved and filled again, besides the numbers in `config`. All outlive
// Checkpoints.
struct Run {
  const Config& config;
  int64_t data_bytes;  // of the text
  Llama& model;
  torch::optim::Optimizer& optimizer;
  Progress& progress;
  fsdp::Prepared& training;
};

class Checkpoints {
 public:
  explicit Checkpoints(const Run& run);

  // Before the first step: goes on after the newest step that is whole.
  // InvalidArgument, with all that differs, when the step is one of another
  // model, seed or data.
  absl::Status Begin();
  // A save copies parameters while the next step computes: now they change.
  absl::Status BeforeOptimizerStep();
  // Saves where it is time to.
  absl::Status AfterStep();
  // SIGTERM has come, and AfterStep has saved.
  bool should_stop() const;
  // After the last step: waits until all is on disk, and exports.
  absl::Status Finish();

 private:
  absl::StatusOr<dcp::StateDict> State();
  absl::Status CheckSame(const std::string& path) const;
  absl::Status Resume(const std::string& path, int64_t step);
  absl::Status Export(int64_t step);

  const Run run_;
  int64_t num_steps_at_begin_ = 0;
  dcp::CheckpointManager* const manager_;  // of --checkpoint-dir, or null
};

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_CHECKPOINTS_H_
