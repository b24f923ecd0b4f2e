// SPDX-License-Identifier: Apache-2.0
// Finds the groups and places of parameters on a mesh.
// Tested by tests/fsdp/replicate_test.cc.
#include "fsdp/engine/data_parallel_mesh.h"

#include <cstddef>

#include "c10/util/Exception.h"

namespace fsdp {

int64_t DataParallelMesh::num_shards() const {
  return shard_axis.has_value() ? mesh.size(*shard_axis) : 1;
}

int64_t DataParallelMesh::shard_rank() const {
  return shard_axis.has_value() ? mesh.get_local_rank(*shard_axis) : 0;
}

DeviceMesh DataParallelMesh::shard_mesh() const {
  if (!shard_axis.has_value()) {
    return DeviceMesh::from_group(self_group(), mesh.device_type());
  }
  return mesh.ndim() == 1
             ? mesh
             : mesh[mesh.mesh_dim_names()[static_cast<size_t>(*shard_axis)]];
}

ProcessGroup DataParallelMesh::replicate_group() const {
  return replicate_axis.has_value() ? mesh.get_group(*replicate_axis)
                                    : ProcessGroup();
}

Placements DataParallelMesh::PlacementsFor(const Placement& shard) const {
  Placements placements(static_cast<size_t>(mesh.ndim()), Replicate());
  if (shard_axis.has_value()) {
    placements[static_cast<size_t>(*shard_axis)] = shard;
  }
  return placements;
}

bool HaveOneGroup(const DataParallelMesh& a, const DataParallelMesh& b) {
  return a.shard_group() == b.shard_group() &&
         a.replicate_group() == b.replicate_group();
}

void ValidateShardingMesh(const DeviceMesh& mesh, const std::string& of) {
  TORCH_CHECK_VALUE(mesh.ndim() == 1 || mesh.ndim() == 2, of,
                    " must have 1 or 2 axes, not ", mesh.ndim());
  TORCH_CHECK(mesh.ndim() == 1 || !mesh.mesh_dim_names().empty(), of,
              " of 2 axes needs names: the first replicates, the second "
              "shards");
}

DataParallelMesh ShardingMesh(const DeviceMesh& mesh) {
  DataParallelMesh found{
      .mesh = mesh, .shard_axis = mesh.ndim() - 1, .replicate_axis = {}};
  if (mesh.ndim() == 2) found.replicate_axis = 0;
  return found;
}

}  // namespace fsdp
