// SPDX-License-Identifier: Apache-2.0
// AveragingSteps: the steps of a training after which an average takes the
// weights: a window, and a stride in it. Plain data; any thread.
#ifndef FSDP_AVERAGING_AVERAGING_STEPS_H_
#define FSDP_AVERAGING_AVERAGING_STEPS_H_

#include <cstdint>
#include <limits>

namespace fsdp::optim {

// Steps count from 1: the weights after step 1 are those of the first update.
struct AveragingSteps {
  int64_t first = 1;
  int64_t last = std::numeric_limits<int64_t>::max();
  int64_t every = 1;

  // Throws c10::ValueError unless 1 <= first <= last and 1 <= every.
  void Check() const;
  // Whether `step` is first, first + every, ... and at most last.
  bool contains(int64_t step) const {
    return step >= first && step <= last && (step - first) % every == 0;
  }
};

}  // namespace fsdp::optim

#endif  // FSDP_AVERAGING_AVERAGING_STEPS_H_
