// SPDX-License-Identifier: Apache-2.0
// LearningRate: the schedule of a config, stepping a LibTorch optimizer's
// learning rates; and a config's options of AdamW. For the thread that trains.
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

// Its step() is called after each step of the optimizer, as in PyTorch. As an
// entry of a state dict it is saved, and continues from there when loaded.
class LearningRate final : public torch::optim::LRScheduler, public Stateful {
 public:
  // Sets the learning rates of step 0. The schedule multiplies the current rate
  // of each of the optimizer's groups. The optimizer must outlive this. A
  // schedule without total_steps ends with `num_steps`.
  LearningRate(torch::optim::Optimizer& optimizer, const LrSchedule& schedule,
               int64_t num_steps);

  // Sets the learning rates of a step, counted from 0, for a resumed run;
  // step() continues from there.
  void set_step(int64_t step);

  // {"last_epoch": step}, as the schedulers of PyTorch call it. The base rates
  // are the config's and are not saved: a change in the config changes the
  // rates of a resumed run.
  absl::StatusOr<StateDict> state_dict() override;
  // InvalidArgument without a "last_epoch" that is an integer from 0.
  absl::Status load_state_dict(const StateDict& state) override;

 private:
  std::vector<double> get_lrs() override;

  LrSchedule schedule_;
  int64_t num_steps_;
  std::vector<double> base_;  // of each group
};

// Whether the curve depends on the number of steps of the run.
bool needs_num_steps(const LrSchedule& schedule);

// Gives an AdamW (torch::optim::AdamW or FusedAdamW) the lr, weight_decay,
// betas and eps of the config. Only values equal to the optimizer's defaults
// are replaced, so that groups with their own value, such as no weight decay
// for norms, keep it. What the config does not set stays. InvalidArgument, with
// the first value that the config sets, for an optimizer of another class,
// because the same numbers mean something else there.
absl::Status set_hyperparameters(const LoopConfig& loop,
                                 torch::optim::Optimizer& optimizer);

// lr, weight_decay, betas and eps of the config; what it does not set is as in
// `otherwise`.
torch::optim::AdamWOptions adamw_options(
    const LoopConfig& loop, const torch::optim::AdamWOptions& otherwise = {});

}  // namespace fsdp

#endif  // FSDP_PREPARE_LEARNING_RATE_H_
