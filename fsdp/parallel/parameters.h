// SPDX-License-Identifier: Apache-2.0
// parallelize_parameters: cuts a module's parameters over a mesh, in place, so
// that each rank's module holds a part. parallelize_module
// (tensor/parallelize_module.h) is based on it. Call it directly for modules
// with a forward that is written for parts, such as experts. For the thread
// that trains.
#ifndef FSDP_PARALLEL_PARAMETERS_H_
#define FSDP_PARALLEL_PARAMETERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/parallel_group.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/placement.h"
#include "torch/nn/module.h"

namespace fsdp {

// Turns the module's own parameters with these names into this rank's parts:
// both the class's member and the tensor in the registry. The values are those
// on rank `src_data_rank` on every axis of `mesh` (collective over it), or,
// without it, each rank's own whole values (no communication). On the meta
// device only sizes change.
//
// dtensor_of and fsdp::parameters give these parameters as DTensors on `mesh`.
// A later fully_shard takes them over and adds axes; both meshes must then be
// slices of one mesh. Build optimizers after that.
//
// Throws c10::ValueError for an unknown name, a parameter that is parallel or
// sharded already, or one that other modules hold too (tied weights: see
// parallelize_module), c10::IndexError for a dimension that a parameter does
// not have, and c10::NotImplementedError for a parameter that is not
// contiguous. Nothing has changed then.
void parallelize_parameters(
    torch::nn::Module& module, const DeviceMesh& mesh,
    const std::vector<std::pair<std::string, Placements>>& parameters,
    std::optional<int64_t> src_data_rank = 0);

// For parallelize_module: one parameter, and every place that holds it.
struct ParallelRequest {
  ParallelTarget target;  // has a complete spec
  std::optional<int64_t> src_data_rank = 0;
};
// Cuts and takes over each checked request. Collective.
void TakeOverAll(const std::vector<ParallelRequest>& requests);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PARAMETERS_H_
