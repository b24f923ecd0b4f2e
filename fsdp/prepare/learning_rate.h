// LearningRate: the schedule of a config, stepping a LibTorch optimizer's
// learning rates; and the options of AdamW that a config says. For the thread
// that trains.
#ifndef FSDP_PREPARE_LEARNING_RATE_H_
#define FSDP_PREPARE_LEARNING_RATE_H_

#include <cstdint>
#include <vector>

#include "fsdp/config/train_config.h"
#include "torch/optim/adamw.h"
#include "torch/optim/optimizer.h"
#include "torch/optim/schedulers/lr_scheduler.h"

namespace fsdp {

class LearningRate final : public torch::optim::LRScheduler {
 public:
  // Sets the learning rates of step 0. The optimizer's present ones are what
  // the schedule multiplies, each group's its own; it must outlive this. A
  // schedule without total_steps ends with `num_steps`.
  LearningRate(torch::optim::Optimizer& optimizer, const LrSchedule& schedule,
               int64_t num_steps);

  // Sets those of a step, counted from 0, as of a run that goes on; step()
  // goes on from there.
  void set_step(int64_t step);

 private:
  std::vector<double> get_lrs() override;

  LrSchedule schedule_;
  int64_t num_steps_;
  std::vector<double> base_;  // of each group
};

// lr, weight_decay, betas and eps of the config; what it does not say is as in
// `otherwise`.
torch::optim::AdamWOptions adamw_options(
    const LoopConfig& loop, const torch::optim::AdamWOptions& otherwise = {});

}  // namespace fsdp

#endif  // FSDP_PREPARE_LEARNING_RATE_H_
