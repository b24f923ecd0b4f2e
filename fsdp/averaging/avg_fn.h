// SPDX-License-Identifier: Apache-2.0
// The formulas of AveragedModel: torch.optim.swa_utils.get_ema_avg_fn and
// get_swa_avg_fn of PyTorch 2.15, operator by operator, so that results have
// the same bits. Pure; any thread.
#ifndef FSDP_AVERAGING_AVG_FN_H_
#define FSDP_AVERAGING_AVG_FN_H_

#include <cstdint>
#include <functional>

#include "ATen/core/Tensor.h"

namespace fsdp::optim {

// Returns the new average. `averaged` is the old one, `current` the model's
// tensor on the same device, and `n_averaged`, at least 1, counts the models
// in `averaged`. Called for each tensor on this rank's part, element by
// element; it must not communicate.
using AvgFn = std::function<at::Tensor(
    const at::Tensor& averaged, const at::Tensor& current, int64_t n_averaged)>;

// decay * averaged + (1 - decay) * current. Throws c10::ValueError for a decay
// outside [0, 1].
AvgFn get_ema_avg_fn(double decay = 0.999);

// The mean with equal weights: averaged + (current - averaged) / (n + 1).
AvgFn get_swa_avg_fn();

}  // namespace fsdp::optim

#endif  // FSDP_AVERAGING_AVG_FN_H_
