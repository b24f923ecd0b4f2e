// SPDX-License-Identifier: Apache-2.0
// Tested by tests/fsdp/optim/compact_adamw_test.cc.
#include "fsdp/optim/stochastic_rounding.h"

#include "ATen/Context.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/Generator.h"
#include "ATen/ops/randint.h"

namespace fsdp::optim {

// Adding up to 2^16 - 1 to the bits of a float32 carries into the bits that
// bfloat16 has with the probability of the lower ones. The sign is not touched.
at::Tensor RoundStochastically(const at::Tensor& values, uint64_t seed) {
  at::Generator generator =
      at::globalContext().defaultGenerator(values.device()).clone();
  generator.set_current_seed(seed);
  const at::Tensor noise =
      at::randint(0, int64_t{1} << 16, values.sizes(), generator,
                  values.options().dtype(at::kInt));
  constexpr int64_t kUpper = -(int64_t{1} << 16);
  return (values.contiguous().view(at::kInt) + noise)
      .bitwise_and(kUpper)
      .view(at::kFloat)
      .to(at::kBFloat16);
}

}  // namespace fsdp::optim
