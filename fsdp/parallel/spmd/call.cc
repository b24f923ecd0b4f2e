// SPDX-License-Identifier: Apache-2.0
// Runs an operator call, whole or as PyTorch composes it.
//
// Tested by tests/fsdp/parallel/spmd/rules/pointwise_test.cc.
#include "fsdp/parallel/spmd/call.h"

#include <utility>

#include "c10/core/DispatchKeySet.h"

namespace fsdp::spmd {

std::vector<Operand> Call::operands(size_t i) const {
  std::vector<Operand> found;
  for (const at::Tensor& tensor : args_[i].toTensorVector()) {
    found.emplace_back(tensor, axis_);
  }
  return found;
}

std::optional<size_t> Call::argument_index(const char* name) const {
  const std::vector<c10::Argument>& arguments = op_.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == name) return i;
  }
  return std::nullopt;
}

at::Tensor Call::Wrapped(at::Tensor part, const Layout& layout,
                         int64_t length) const {
  Sizes whole = part.sizes().vec();
  if (layout.is_shard()) whole[static_cast<size_t>(layout.dim)] = length;
  return Wrap(std::move(part), layout, axis_, whole);
}

std::optional<Values> Call::RunComposed() const {
  if (!op_.hasKernelForDispatchKey(
          c10::DispatchKey::CompositeImplicitAutograd)) {
    return std::nullopt;
  }
  // PyTorch composes the operator in the same way for every device.
  Values values = args();
  op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::AutogradCPU),
                      &values);
  return values;
}

}  // namespace fsdp::spmd
