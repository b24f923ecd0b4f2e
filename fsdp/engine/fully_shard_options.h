// SPDX-License-Identifier: Apache-2.0
// The options of one fully_shard call. A plain value; fully_shard validates it.
#ifndef FSDP_ENGINE_FULLY_SHARD_OPTIONS_H_
#define FSDP_ENGINE_FULLY_SHARD_OPTIONS_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/all_gather_extension.h"
#include "fsdp/engine/policies.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor_spec.h"
#include "fsdp/mesh/placement.h"

namespace fsdp {

// Where a parameter is cut, and over which ranks. Made from a Shard, from
// nothing (dimension 0), or with a mesh in place of the call's.
struct ShardPlacementResult {
  // NOLINTNEXTLINE(google-explicit-constructor): return std::nullopt
  ShardPlacementResult(std::nullopt_t nothing) : placement(nothing) {}
  // NOLINTNEXTLINE(google-explicit-constructor): return Shard(1)
  ShardPlacementResult(Shard shard) : placement(shard) {}
  // NOLINTNEXTLINE(google-explicit-constructor): as above
  ShardPlacementResult(std::optional<Shard> shard) : placement(shard) {}
  // One axis, or two named ones, as FullyShardOptions::mesh.
  ShardPlacementResult(std::optional<Shard> shard, DeviceMesh own_mesh)
      : placement(shard), mesh(std::move(own_mesh)) {}

  std::optional<Shard> placement = {};
  std::optional<DeviceMesh> mesh = {};
};

struct FullyShardOptions {
  // One axis: shard over it. Two axes, named: replicate over the first, shard
  // over the second (HSDP). Unset: all ranks, one axis.
  std::optional<DeviceMesh> mesh = {};
  ReshardAfterForward reshard_after_forward = {};
  // Asked once for each parameter. A dimension other than 0 must be divisible
  // by the shard count. Parameters on one mesh are a group, with own gathers
  // and reductions; a call may so have several groups (experts over some
  // ranks, the rest over others), which are gathered together.
  std::function<ShardPlacementResult(const at::Tensor&)> shard_placement_fn =
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
