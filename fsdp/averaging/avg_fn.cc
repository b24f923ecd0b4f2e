// SPDX-License-Identifier: Apache-2.0
// Tested by tests/fsdp/averaging/averaged_model_test.cc.
#include "fsdp/averaging/avg_fn.h"

#include "ATen/TensorOperators.h"
#include "c10/util/Exception.h"

namespace fsdp::optim {

AvgFn get_ema_avg_fn(double decay) {
  // Also refuses NaN.
  TORCH_CHECK_VALUE(decay >= 0 && decay <= 1, "the decay ", decay,
                    " of an average must be from 0 to 1");
  return [decay](const at::Tensor& averaged, const at::Tensor& current,
                 int64_t /*n_averaged*/) {
    return averaged * decay + current * (1 - decay);
  };
}

AvgFn get_swa_avg_fn() {
  return [](const at::Tensor& averaged, const at::Tensor& current,
            int64_t n_averaged) {
    return averaged + (current - averaged) / (n_averaged + 1);
  };
}

}  // namespace fsdp::optim
