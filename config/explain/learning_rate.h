// SPDX-License-Identifier: Apache-2.0
// learning_rate_factor: a learning rate's curve. Pure; any thread.
#ifndef CONFIG_EXPLAIN_LEARNING_RATE_H_
#define CONFIG_EXPLAIN_LEARNING_RATE_H_

#include <cstdint>

#include "config/model/train_config.h"

namespace fsdp {

// The factor for the learning rate in a step, counted from 0, when a run has
// `num_steps`: as in transformers' get_scheduler and in most programs or, with
// counts_from_one, as in TorchTitan's build_lr_schedulers.
double learning_rate_factor(const LrSchedule& schedule, int64_t step,
                            int64_t num_steps);

}  // namespace fsdp

#endif  // CONFIG_EXPLAIN_LEARNING_RATE_H_
