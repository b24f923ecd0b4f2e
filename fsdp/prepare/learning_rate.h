// LearningRate: the schedule of a config, stepping a LibTorch optimizer's
// learning rates; and the options of AdamW that a config says. For the thread
// that trains.
#ifndef FSDP_PREPARE_LEARNING_RATE_H_
#define FSDP_PREPARE_LEARNING_RATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/torch/state_value.h"
#include "fsdp/config/train_config.h"
#include "torch/optim/adamw.h"
#include "torch/optim/optimizer.h"
#include "torch/optim/schedulers/lr_scheduler.h"

namespace fsdp {

// Its step() is called after each step of the optimizer, as in PyTorch. As an
// entry of a state dict it is saved and goes on where it was.
class LearningRate final : public torch::optim::LRScheduler,
                           public dcp::Stateful {
 public:
  // Sets the learning rates of step 0. The optimizer's present ones are what
  // the schedule multiplies, each group's its own; it must outlive this. A
  // schedule without total_steps ends with `num_steps`.
  LearningRate(torch::optim::Optimizer& optimizer, const LrSchedule& schedule,
               int64_t num_steps);

  // Sets those of a step, counted from 0, as of a run that goes on; step()
  // goes on from there.
  void set_step(int64_t step);

  // {"last_epoch": step}, as the schedulers of PyTorch call it. What the rates
  // are multiples of is the config's and is not saved: whoever changes it,
  // changes what a run that goes on trains with.
  absl::StatusOr<dcp::StateDict> state_dict() override;
  // InvalidArgument without a "last_epoch" that is an integer from 0.
  absl::Status load_state_dict(const dcp::StateDict& state) override;

 private:
  std::vector<double> get_lrs() override;

  LrSchedule schedule_;
  int64_t num_steps_;
  std::vector<double> base_;  // of each group
};

// Whether the curve depends on the number of steps of the run.
bool needs_num_steps(const LrSchedule& schedule);

// Gives an AdamW (torch::optim::AdamW or FusedAdamW) the lr, weight_decay,
// betas and eps of the config. Groups that have a value of their own, such as
// no weight decay for norms, keep it: what is replaced is what is equal to the
// optimizer's defaults. Nothing changes what the config does not say.
// InvalidArgument, naming the first value that the config says, for an
// optimizer of another class: with the same numbers it would train something
// else.
absl::Status set_hyperparameters(const LoopConfig& loop,
                                 torch::optim::Optimizer& optimizer);

// lr, weight_decay, betas and eps of the config; what it does not say is as in
// `otherwise`.
torch::optim::AdamWOptions adamw_options(
    const LoopConfig& loop, const torch::optim::AdamWOptions& otherwise = {});

}  // namespace fsdp

#endif  // FSDP_PREPARE_LEARNING_RATE_H_
