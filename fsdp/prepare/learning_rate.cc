#include "fsdp/prepare/learning_rate.h"

#include <tuple>

#include "fsdp/config/learning_rate.h"

namespace fsdp {

LearningRate::LearningRate(torch::optim::Optimizer& optimizer,
                           const LrSchedule& schedule, int64_t num_steps)
    : LRScheduler(optimizer),
      schedule_(schedule),
      num_steps_(num_steps),
      base_(get_current_lrs()) {
  set_step(0);
}

void LearningRate::set_step(int64_t step) {
  step_count_ = static_cast<unsigned>(step);
  LRScheduler::step();
}

std::vector<double> LearningRate::get_lrs() {
  const double factor = learning_rate_factor(
      schedule_, static_cast<int64_t>(step_count_), num_steps_);
  std::vector<double> rates = base_;
  for (double& rate : rates) rate *= factor;
  return rates;
}

torch::optim::AdamWOptions adamw_options(
    const LoopConfig& loop, const torch::optim::AdamWOptions& otherwise) {
  const auto [beta1, beta2] = otherwise.betas();
  torch::optim::AdamWOptions options = otherwise;
  options.lr(loop.lr->value_or(otherwise.lr()));
  options.weight_decay(loop.weight_decay->value_or(otherwise.weight_decay()));
  options.betas({loop.beta1->value_or(beta1), loop.beta2->value_or(beta2)});
  options.eps(loop.eps->value_or(otherwise.eps()));
  return options;
}

}  // namespace fsdp
