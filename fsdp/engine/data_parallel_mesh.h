// SPDX-License-Identifier: Apache-2.0
// DataParallelMesh: the axes over which parameters are sharded, and those over
// which they are replicated (PyTorch's FSDPMeshInfo, HSDPMeshInfo and
// DDPMeshInfo). A plain value; for the thread that trains.
#ifndef FSDP_ENGINE_DATA_PARALLEL_MESH_H_
#define FSDP_ENGINE_DATA_PARALLEL_MESH_H_

#include <cstdint>
#include <optional>
#include <string>

#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/placement.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

struct DataParallelMesh {
  DeviceMesh mesh;
  // Axes of `mesh`; one of the two is set at least.
  std::optional<int64_t> shard_axis;
  std::optional<int64_t> replicate_axis;

  int64_t num_shards() const;
  // This rank's index among the shards.
  int64_t shard_rank() const;
  // Without an axis that shards: this rank alone.
  DeviceMesh shard_mesh() const;
  ProcessGroup shard_group() const { return shard_mesh().get_group(); }
  // Null without an axis that replicates.
  ProcessGroup replicate_group() const;
  // How a parameter lies on `mesh` if `shard` cuts it: one for each axis.
  Placements PlacementsFor(const Placement& shard) const;
};

// Whether both have the same process groups.
bool HaveOneGroup(const DataParallelMesh& a, const DataParallelMesh& b);

// Throws c10::ValueError or c10::Error unless fully_shard takes such a mesh;
// `of` begins the error.
void ValidateShardingMesh(const DeviceMesh& mesh, const std::string& of);

// fully_shard's rule: the last axis shards, and the one before it replicates.
DataParallelMesh ShardingMesh(const DeviceMesh& mesh);

}  // namespace fsdp

#endif  // FSDP_ENGINE_DATA_PARALLEL_MESH_H_
