// SPDX-License-Identifier: Apache-2.0
// A run's progress: the steps' losses, and the lines that it prints. For the
// thread that trains; all ranks make the same calls.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_PROGRESS_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "fsdp/examples/train_llama/config.h"

namespace llama {

// Prints a line, on rank 0 only; nothing if it is empty.
void Say(const std::string& line);

class Progress {
 public:
  // `config` must outlive this.
  explicit Progress(const Config& config);

  // How many steps are finished.
  int64_t num_steps() const { return num_steps_; }

  // Adds a finished step; `loss` is this rank's. Prints every few steps, with
  // that step's learning rate, because printing waits for the other ranks and
  // for a GPU.
  void Add(const at::Tensor& loss, double learning_rate);

  // Each step's loss, averaged over ranks: [num_steps], float64. An alias to
  // memory that later steps do not change. Collective.
  at::Tensor Losses();

  // Takes over the losses from an earlier run, which this run continues.
  void ContinueAfter(const at::Tensor& losses);

  // Writes --losses-out, on rank 0. Collective.
  absl::Status WriteLosses();

 private:
  using Clock = std::chrono::steady_clock;

  void Print(double learning_rate);

  const Config& config_;
  at::Tensor losses_;         // room for all steps
  int64_t num_steps_ = 0;     // in losses_
  int64_t num_averaged_ = 0;  // the first of those
  int64_t num_printed_ = 0;
  Clock::time_point printed_at_ = Clock::now();
};

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_PROGRESS_H_
