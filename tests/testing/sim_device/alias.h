// SPDX-License-Identifier: Apache-2.0
// Alias: a device tensor's memory as a tensor on the CPU, for a stream's
// thread. Like a kernel, it does not keep the memory allocated.
#ifndef TESTS_TESTING_SIM_DEVICE_ALIAS_H_
#define TESTS_TESTING_SIM_DEVICE_ALIAS_H_

#include <cstdint>
#include <vector>

#include "ATen/core/LegacyTypeDispatch.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "tests/testing/sim_device/race_detector.h"

namespace sim {

class Alias {
 public:
  explicit Alias(const at::Tensor& tensor);

  at::Tensor OnCpu() const;
  // A new tensor of zeros with the same sizes and strides.
  at::Tensor ZerosLike() const;

 private:
  void* data_;
  std::vector<int64_t> sizes_, strides_;
  c10::ScalarType dtype_;
};

// Whether the tensor is on a simulated device.
bool IsOurs(const at::Tensor& tensor);

Access Reads(const at::Tensor& tensor);
Access Writes(const at::Tensor& tensor);

// While it lives, this thread runs kernels: below autograd.
class KernelScope {
 private:
  const at::AutoDispatchBelowADInplaceOrView below_;
  const c10::AutoGradMode no_grad_{false};
};

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_ALIAS_H_
