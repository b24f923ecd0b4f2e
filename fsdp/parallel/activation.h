// SPDX-License-Identifier: Apache-2.0
// Activations in parts on a mesh's ranks, for programs: they are the results
// that a model computes under parallelize_module or context_parallel. They
// report the whole sizes, and operators on them compute with the parts. For
// parameters see DTensor. For the thread that trains.
#ifndef FSDP_PARALLEL_ACTIVATION_H_
#define FSDP_PARALLEL_ACTIVATION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/placement.h"
#include "fsdp/parallel/spmd/handler.h"

namespace fsdp {

// The activation with `part` as this rank's part. Along a dimension that is
// cut, every rank must have the same length. Placements as for DTensor, one for
// each axis of `mesh`; Replicate on all axes returns `part`. Gradients flow to
// `part`. Communicates nothing. Throws c10::ValueError unless there are as many
// placements as axes, c10::IndexError for a dimension that does not exist.
at::Tensor from_local(const at::Tensor& part, const DeviceMesh& mesh,
                      const Placements& placements);

// Cuts an activation that is whole on every rank in `mesh` along `dim`; a plain
// tensor must be equal on all of them. Communicates nothing in forward.
at::Tensor shard(const at::Tensor& whole, const DeviceMesh& mesh, int64_t dim);

// This rank's part, an ordinary tensor. Returns an ordinary tensor unchanged.
at::Tensor to_local(const at::Tensor& activation);

// The whole, on every rank. Collective. Returns an ordinary tensor unchanged.
at::Tensor full_tensor(const at::Tensor& activation);

// The same value, laid out by `placement` on `mesh`, which has one axis; other
// axes stay. Collective.
at::Tensor redistribute(const at::Tensor& activation, const DeviceMesh& mesh,
                        const Placement& placement);

// An activation's layout: an element for each axis on which it is not simply
// the same on every rank, in the order in which the axes cut. Empty for an
// ordinary tensor.
struct AxisLayout {
  DeviceMesh mesh;
  Placement placement;
};
std::vector<AxisLayout> layout_of(const at::Tensor& activation);

using spmd::gathered_operators;
using spmd::StrictLayouts;

}  // namespace fsdp

#endif  // FSDP_PARALLEL_ACTIVATION_H_
