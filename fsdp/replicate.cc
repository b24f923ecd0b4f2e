// SPDX-License-Identifier: Apache-2.0

#include "fsdp/replicate.h"

#include "c10/util/Exception.h"
#include "fsdp/sharding_call.h"

namespace fsdp {

FSDPModule replicate(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
    const ReplicateOptions& options) {
  const DeviceMesh mesh =
      options.mesh.has_value() ? *options.mesh : DefaultMesh({"replicate"});
  TORCH_CHECK_VALUE(mesh.ndim() == 1, "replicate: the mesh must have 1 axis, ",
                    "not ", mesh.ndim());
  return CallOnModules(
      {.function = "replicate",
       .mesh = {.mesh = mesh, .shard_axis = {}, .replicate_axis = 0},
       .options = {.reshard_after_forward = false,
                   .mp_policy = options.mp_policy,
                   .offload_policy = options.offload_policy,
                   .ignored_params = options.ignored_params}},
      modules);
}

FSDPModule replicate(const std::shared_ptr<torch::nn::Module>& module,
                     const ReplicateOptions& options) {
  return replicate(std::vector<std::shared_ptr<torch::nn::Module>>{module},
                   options);
}

}  // namespace fsdp
