// SPDX-License-Identifier: Apache-2.0
// MeshMatrices: the matrices of the parameters that lie on one mesh, with the
// group over which they travel, and where this rank's parts lie in the shards.
// For muon_step.cc, on the thread that trains.
#ifndef FSDP_OPTIM_MESH_MATRICES_H_
#define FSDP_OPTIM_MESH_MATRICES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "dcp/tensor/box.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor_spec.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/mesh/rank_boxes.h"
#include "fsdp/optim/matrix_plan.h"

namespace fsdp {

// A parameter with a gradient.
struct SteppedParameter {
  // The tensor, as an identity only.
  const void* tensor;
  std::vector<int64_t> shape;       // the whole parameter's
  std::optional<DTensorSpec> spec;  // absent: the parameter is whole
  int64_t rows_per_matrix;

  friend bool operator==(const SteppedParameter&,
                         const SteppedParameter&) = default;
};

struct MeshMatrices {
  std::optional<DeviceMesh> mesh;  // absent: the parameters are whole
  ProcessGroup group;              // all ranks of the mesh; null without one
  std::vector<size_t> parameters;  // in the caller's list
  MatrixPlan plan;                 // of parameters as numbered there

  // By parameter:
  std::vector<std::vector<LocalBox>> boxes;   // this rank's
  std::vector<std::vector<size_t>> finished;  // in plan.matrices: local ones
  std::vector<std::vector<size_t>> pieces;    // in plan.held

  // The part of the local tensor of parameter `index` that `box`, in a matrix
  // of the whole parameter, is: two dimensions.
  at::Tensor LocalPart(size_t index, const at::Tensor& local,
                       const dcp::Box& box) const;
};

// One for each mesh, in the order of first use; parameters on meshes without
// this rank are left out. The first call for a mesh with several axes is
// collective over all ranks.
std::vector<MeshMatrices> MakeMeshMatrices(
    const std::vector<SteppedParameter>& parameters);

}  // namespace fsdp

#endif  // FSDP_OPTIM_MESH_MATRICES_H_
