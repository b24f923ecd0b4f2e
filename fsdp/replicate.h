// SPDX-License-Identifier: Apache-2.0
// replicate: data parallelism with whole copies (DDP), in fully_shard's engine:
// PyTorch's replicate over FSDP2 (torch/distributed/_composable/
// replicate_with_fsdp.py). Each rank keeps whole parameters, and gradients are
// averaged, one all-reduce for each call. Parameters are DTensors with
// Replicate(), so that saving, loading, clipping and the optimizers are those
// of sharded modules. For the thread that trains; every rank must make the same
// calls in the same order.
#ifndef FSDP_REPLICATE_H_
#define FSDP_REPLICATE_H_

#include <memory>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/policies.h"
#include "fsdp/fsdp_module.h"
#include "fsdp/mesh/device_mesh.h"
#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"

namespace fsdp {

struct ReplicateOptions {
  // One axis. Unset: all ranks.
  std::optional<DeviceMesh> mesh = {};
  MixedPrecisionPolicy mp_policy = {};
  std::optional<CPUOffloadPolicy> offload_policy = {};
  // These are left as they are: not moved, not reduced.
  std::vector<at::Tensor> ignored_params = {};
};

// Takes the parameters of `module` that no earlier call of replicate or
// fully_shard on a module inside it took. Copies must begin with equal values:
// seed all ranks alike, load a checkpoint, or call broadcast_module. The handle
// has FSDPModule's functions, except for set_reshard_after_forward: parameters
// stay as they are gathered, in param_dtype, until backward. Errors as
// fully_shard's.
FSDPModule replicate(const std::shared_ptr<torch::nn::Module>& module,
                     const ReplicateOptions& options = {});
// Several modules as one group.
FSDPModule replicate(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
    const ReplicateOptions& options = {});
template <typename Impl>
FSDPModule replicate(const torch::nn::ModuleHolder<Impl>& module,
                     const ReplicateOptions& options = {}) {
  return replicate(std::static_pointer_cast<torch::nn::Module>(module.ptr()),
                   options);
}

}  // namespace fsdp

#endif  // FSDP_REPLICATE_H_
