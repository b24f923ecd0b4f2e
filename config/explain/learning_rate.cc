// SPDX-License-Identifier: Apache-2.0

#include "config/explain/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fsdp {
namespace {

// Falls from 1 where the decay begins to 0 where it ends.
double Decayed(LrDecay decay, double progress) {
  switch (decay) {
    case LrDecay::kConstant:
      return 1;
    case LrDecay::kLinear:
      return 1 - progress;
    case LrDecay::kCosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * progress));
    case LrDecay::kSqrt:
      return 1 - std::sqrt(progress);
  }
  return 1;
}

int64_t WarmupSteps(const LrSchedule& schedule, int64_t num_steps) {
  if (schedule.warmup_steps > 0) {
    return std::min(schedule.warmup_steps, num_steps);
  }
  return static_cast<int64_t>(
      std::ceil(schedule.warmup_ratio * static_cast<double>(num_steps)));
}

int64_t DecaySteps(const LrSchedule& schedule, int64_t num_steps,
                   int64_t warmup) {
  if (!schedule.decay_ratio.has_value()) return num_steps - warmup;
  // Python's round, which TorchTitan calls: halves are rounded to the even
  // number.
  const double steps =
      std::nearbyint(*schedule.decay_ratio * static_cast<double>(num_steps));
  return std::min(static_cast<int64_t>(steps), num_steps - warmup);
}

}  // namespace

double learning_rate_factor(const LrSchedule& schedule, int64_t step,
                            int64_t num_steps) {
  num_steps = schedule.total_steps.value_or(num_steps);
  const int64_t warmup = WarmupSteps(schedule, num_steps);
  const int64_t offset = schedule.counts_from_one ? 1 : 0;
  if (step < warmup) {
    const double progress =
        static_cast<double>(step + offset) / static_cast<double>(warmup);
    return schedule.initial_factor + (1 - schedule.initial_factor) * progress;
  }
  const int64_t decay = DecaySteps(schedule, num_steps, warmup);
  // TorchTitan's last step is before the curve's end, not on it.
  const int64_t begin = num_steps - decay + offset;
  if (step < begin || schedule.decay == LrDecay::kConstant) return 1;
  const double progress = static_cast<double>(step + offset - begin) /
                          static_cast<double>(std::max<int64_t>(decay, 1));
  const double factor = Decayed(schedule.decay, std::clamp(progress, 0.0, 1.0));
  return schedule.min_factor + (1 - schedule.min_factor) * factor;
}

}  // namespace fsdp
