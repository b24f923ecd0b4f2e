// SPDX-License-Identifier: Apache-2.0
// Tested by tests/fsdp/averaging/averaged_model_test.cc.
#include "fsdp/averaging/averaging_steps.h"

#include "c10/util/Exception.h"

namespace fsdp::optim {

void AveragingSteps::Check() const {
  TORCH_CHECK_VALUE(first >= 1, "the first step of an average is ", first,
                    "; steps count from 1");
  TORCH_CHECK_VALUE(last >= first, "the last step of an average, ", last,
                    ", is before the first, ", first);
  TORCH_CHECK_VALUE(every >= 1, "an average takes every ", every,
                    "th step; this must be at least 1");
}

}  // namespace fsdp::optim
