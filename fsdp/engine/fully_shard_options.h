// SPDX-License-Identifier: Apache-2.0
// The options of one fully_shard call. A plain value; fully_shard validates it.
#ifndef FSDP_ENGINE_FULLY_SHARD_OPTIONS_H_
#define FSDP_ENGINE_FULLY_SHARD_OPTIONS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/all_gather_extension.h"
#include "fsdp/engine/policies.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor_spec.h"
#include "fsdp/mesh/placement.h"

namespace fsdp {

struct FullyShardOptions {
  // One axis: shard over it. Two axes, named: replicate over the first, shard
  // over the second (HSDP). Unset: all ranks, one axis.
  std::optional<DeviceMesh> mesh = {};
  ReshardAfterForward reshard_after_forward = {};
  // The dimension in which to cut a parameter; absent: dimension 0. Another
  // dimension must be divisible by the shard count.
  std::function<std::optional<Shard>(const at::Tensor&)> shard_placement_fn =
      {};
  MixedPrecisionPolicy mp_policy = {};
  std::optional<CPUOffloadPolicy> offload_policy = {};
  // These are left as they are: not sharded, not moved, not reduced.
  std::vector<at::Tensor> ignored_params = {};
  // For parameters that tensor parallelism has already cut: the module holds
  // this rank's part, and the spec describes the whole tensor and the axes.
  // `mesh` and those axes must be slices from one mesh. Such a parameter's
  // DTensor lies on both, and is a strided shard where both cut one dimension.
  std::function<std::optional<DTensorSpec>(const std::string& name,
                                           const at::Tensor&)>
      tensor_parallel_fn = {};
  // Returns the extension if the parameter is gathered in another form.
  std::function<std::optional<AllGatherExtension>(const std::string& name,
                                                  const at::Tensor&)>
      all_gather_extension_fn = {};
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_FULLY_SHARD_OPTIONS_H_
