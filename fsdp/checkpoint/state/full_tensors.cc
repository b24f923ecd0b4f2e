// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/full_tensors.h"

#include <utility>

#include "ATen/core/grad_mode.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/torch_status.h"

namespace fsdp {
namespace {

at::Tensor CopyOnCpu(const at::Tensor& tensor) {
  return tensor.to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false,
                   /*copy=*/true);
}

absl::Status Visit(const FullTensorsOptions& options, StateValue& value) {
  if (auto* dict = value.get_if<StateDict>()) {
    for (auto& [key, item] : *dict) {
      DCP_RETURN_IF_ERROR(dcp::Annotate(Visit(options, item), key));
    }
    return absl::OkStatus();
  }
  if (auto* list = value.get_if<StateList>()) {
    for (StateValue& item : *list) {
      DCP_RETURN_IF_ERROR(Visit(options, item));
    }
    return absl::OkStatus();
  }
  return CatchTorch([&] {
    if (const auto* tensor = value.get_if<DTensor>()) {
      if (options.full) {
        value = StateValue(tensor->full_tensor());
      } else if (options.to_cpu) {
        value = StateValue(tensor->with_local(CopyOnCpu(tensor->to_local())));
      }
    }
    const auto* tensor = value.get_if<at::Tensor>();
    if (tensor == nullptr) return;
    if (!options.keep) {
      value = StateValue();
    } else if (options.to_cpu) {
      value = StateValue(CopyOnCpu(*tensor));
    }
  });
}

}  // namespace

absl::Status MakeFullTensors(const FullTensorsOptions& options,
                             StateDict& state) {
  const at::NoGradGuard no_grad;
  for (auto& [key, value] : state) {
    DCP_RETURN_IF_ERROR(dcp::Annotate(Visit(options, value), key));
  }
  if (!options.keep) state = StateDict();
  return absl::OkStatus();
}

}  // namespace fsdp
