// SPDX-License-Identifier: Apache-2.0
// LearningRate: a config's schedule, which steps a LibTorch optimizer's
// learning rates; and a config's AdamW options. For the thread that trains.
#ifndef FSDP_PREPARE_LEARNING_RATE_H_
#define FSDP_PREPARE_LEARNING_RATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/model/train_config.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "torch/optim/adamw.h"
#include "torch/optim/optimizer.h"
#include "torch/optim/schedulers/lr_scheduler.h"

namespace fsdp {

// Call step() after each optimizer step, as in PyTorch. As an entry in a state
// dict it is saved, and continues from there when loaded.
class LearningRate final : public torch::optim::LRScheduler, public Stateful {
 public:
  // Sets the learning rates for step 0. The schedule multiplies the current
  // rate in each optimizer group. The optimizer must outlive this. A schedule
  // without total_steps ends with `num_steps`.
  LearningRate(torch::optim::Optimizer& optimizer, const LrSchedule& schedule,
               int64_t num_steps);

  // Sets the learning rates for a step, counted from 0, in a resumed run;
  // step() continues from there.
  void set_step(int64_t step);

  // {"last_epoch": step}, as PyTorch's schedulers call it. The base rates are
  // the config's and are not saved: a change in the config changes a resumed
  // run's rates.
  absl::StatusOr<StateDict> state_dict() override;
  // InvalidArgument without a "last_epoch" that is an integer from 0.
  absl::Status load_state_dict(const StateDict& state) override;

 private:
  std::vector<double> get_lrs() override;

  LrSchedule schedule_;
  int64_t num_steps_;
  std::vector<double> base_;  // one per group
};

// Whether the curve depends on the run's step count.
bool needs_num_steps(const LrSchedule& schedule);

// Gives an AdamW (torch::optim::AdamW or FusedAdamW, and those groups in
// optim::MuonWithAdamW) the config's lr, weight_decay, betas and eps. Only
// values equal to the optimizer's defaults are replaced, so that groups with a
// different value, such as no weight decay for norms, keep it. Values that the
// config does not set stay. Muon's groups take lr and weight_decay if their
// adjust_lr_fn is match_rms_adamw; otherwise they keep their own.
// InvalidArgument, with the first value that the config sets, for an optimizer
// of another class, because the same numbers mean something else there.
absl::Status set_hyperparameters(const LoopConfig& loop,
                                 torch::optim::Optimizer& optimizer);

// The config's lr, weight_decay, betas and eps; values that it does not set are
// as in `otherwise`.
torch::optim::AdamWOptions adamw_options(
    const LoopConfig& loop, const torch::optim::AdamWOptions& otherwise = {});

}  // namespace fsdp

#endif  // FSDP_PREPARE_LEARNING_RATE_H_
