// SPDX-License-Identifier: Apache-2.0
// DeferredCall: one operator call as the kernel will run it: with CPU aliases
// of the device's memory in place of tensors. Made by the thread that issues;
// Run is for the stream's thread.
#ifndef TESTS_TESTING_SIM_DEVICE_DEFERRED_CALL_H_
#define TESTS_TESTING_SIM_DEVICE_DEFERRED_CALL_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/core/stack.h"
#include "tests/testing/sim_device/alias.h"
#include "tests/testing/sim_device/race_detector.h"

namespace sim {

// For in-place and out= variants: the index of the argument that is result `i`.
std::optional<size_t> ArgumentReturned(const c10::FunctionSchema& schema,
                                       size_t i);

struct DeferredCall {
  // Throws c10::Error for tensors on several devices.
  DeferredCall(const c10::FunctionSchema& schema,
               const torch::jit::Stack& values);

  // Runs the kernel on the CPU and returns the results.
  torch::jit::Stack Run(const c10::OperatorHandle& op) const;
  // The same with zeros in place of the device's tensors.
  torch::jit::Stack RunOnZeros(const c10::OperatorHandle& op) const;

  torch::jit::Stack meta;  // the arguments, on the meta device
  std::vector<Access> accesses;
  std::optional<c10::Device> device;  // the tensors' device

 private:
  // A simulated device's tensor, or another one as it is.
  struct TensorArgument {
    std::optional<Alias> alias;
    at::Tensor host;
    at::Tensor Get(bool zeros) const;
  };
  struct Argument {
    enum class Kind { kValue, kTensor, kTensors, kOptionalTensors };
    Kind kind = Kind::kValue;
    c10::IValue value;
    std::vector<TensorArgument> tensors;
    c10::IValue Get(bool zeros) const;
  };

  void Add(const c10::Argument& declared, const c10::IValue& value,
           const std::string& op);
  // Returns the tensor on the meta device.
  at::Tensor AddTensor(const at::Tensor& tensor, bool is_written,
                       const std::string& op, Argument& argument);
  torch::jit::Stack RunWith(const c10::OperatorHandle& op, bool zeros) const;

  std::vector<Argument> arguments_;
};

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_DEFERRED_CALL_H_
