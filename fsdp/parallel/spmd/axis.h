// SPDX-License-Identifier: Apache-2.0
// Axis: one mesh axis over which activations are parallel. Interned: the same
// process group gives the same object, so axes are compared by address. For the
// thread that trains.
#ifndef FSDP_PARALLEL_SPMD_AXIS_H_
#define FSDP_PARALLEL_SPMD_AXIS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp::spmd {

// The way to all keys and values for attention over sequences that are cut on
// an axis.
enum class SequenceAttention : uint8_t {
  kAllGather,  // all of them are gathered; any mask
  kRing,       // they move from rank to rank
  kUlysses,    // each rank gets some heads of the whole sequence
};

struct Axis {
  DeviceMesh mesh;  // with one axis
  ProcessGroup group;
  int64_t size;
  int64_t rank;
  // If two axes cut a tensor, the one with the smaller level cuts first, and
  // the other one cuts those parts. The first is the slower axis in the root
  // mesh.
  int64_t level;
  // Whether a fully_shard group has all ranks on the axis, and so averages
  // gradients over them. By group, filled on demand.
  std::vector<std::pair<ProcessGroup, bool>> averaged_by = {};
  SequenceAttention sequence_attention = SequenceAttention::kAllGather;
};
using AxisPtr = std::shared_ptr<Axis>;

// Whether `group`, over which fully_shard reduces, has every rank of `axis`.
bool IsAveragedBy(const ProcessGroup& group, Axis& axis);

// The axis of `mesh`. Throws c10::ValueError unless the mesh has one axis, and
// this rank is in it.
AxisPtr InternAxis(const DeviceMesh& mesh);

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_AXIS_H_
