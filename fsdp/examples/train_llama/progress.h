// How far a run is: the losses of its steps and the lines that it prints. For
// the thread that trains; all ranks make the same calls.
#ifndef FSDP_EXAMPLES_TRAIN_LLAMA_PROGRESS_H_
#define FSDP_EXAMPLES_TRAIN_LLAMA_PROGRESS_H_

#include <chrono>
#include <cstdint>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "fsdp/examples/train_llama/config.h"

namespace llama {

class Progress {
 public:
  // `config` must outlive this.
  explicit Progress(const Config& config);

  // The steps that are done.
  int64_t num_steps() const { return num_steps_; }

  // A step is done; `loss` is that of this rank. Prints now and then, with the
  // learning rate of that step, for that is when ranks, and a GPU, have to be
  // waited for.
  void Add(const at::Tensor& loss, double learning_rate);

  // Of each step, averaged over ranks: [num_steps], float64. Aliases what
  // later steps do not change. Collective.
  at::Tensor Losses();

  // The steps that had these losses are done: of an earlier run.
  void GoOnAfter(const at::Tensor& losses);

  // Writes --losses-out, on rank 0. Collective.
  absl::Status WriteLosses();

 private:
  using Clock = std::chrono::steady_clock;

  void Print(double learning_rate);

  const Config& config_;
  at::Tensor losses_;         // room for all steps
  int64_t num_steps_ = 0;     // in losses_
  int64_t num_averaged_ = 0;  // of those
  int64_t num_printed_ = 0;
  Clock::time_point printed_at_ = Clock::now();
};

}  // namespace llama

#endif  // FSDP_EXAMPLES_TRAIN_LLAMA_PROGRESS_H_
