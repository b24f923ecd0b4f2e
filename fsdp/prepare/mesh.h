// SPDX-License-Identifier: Apache-2.0
// A run's meshes: the config's degrees on the job's ranks. For prepare;
// collective.
#ifndef FSDP_PREPARE_MESH_H_
#define FSDP_PREPARE_MESH_H_

#include <string>

#include "absl/status/statusor.h"
#include "config/explain/mesh_plan.h"
#include "config/model/train_config.h"
#include "fsdp/mesh/parallel_dims.h"

namespace fsdp {

// Plans the default group's mesh; makes the group if needed.
absl::StatusOr<MeshPlan> PlanMeshOfWorld(const MeshConfig& config);

// `device`, or, if that is empty, "cuda" if this build and machine have it,
// else "cpu".
std::string DeviceOr(const std::string& device);

// The plan's meshes. The plan's product must be the rank count.
ParallelDims MakeDims(const MeshPlan& plan, const std::string& device);

}  // namespace fsdp

#endif  // FSDP_PREPARE_MESH_H_
