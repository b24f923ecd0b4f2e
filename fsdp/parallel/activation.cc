// SPDX-License-Identifier: Apache-2.0
// Converts between activations in parts and ordinary tensors, for programs.
//
// Tested by tests/fsdp/parallel/tensor/activation_test.cc.
#include "fsdp/parallel/activation.h"

#include "fsdp/mesh/dtensor_spec.h"
#include "fsdp/parallel/spmd/axis.h"
#include "fsdp/parallel/spmd/moves.h"
#include "fsdp/parallel/spmd/operand.h"
#include "fsdp/parallel/spmd/sharded.h"

namespace fsdp {
namespace {

DeviceMesh AxisMesh(const DeviceMesh& mesh, int64_t axis) {
  return mesh.ndim() == 1
             ? mesh
             : mesh[mesh.mesh_dim_names()[static_cast<size_t>(axis)]];
}

}  // namespace

at::Tensor from_local(const at::Tensor& part, const DeviceMesh& mesh,
                      const Placements& placements) {
  spmd::InstallHandler();
  const Placements normal = Normalized(placements, mesh, part.dim());
  at::Tensor activation = part;
  for (int64_t i = mesh.ndim() - 1; i >= 0; --i) {
    const spmd::Layout layout =
        spmd::ToLayout(normal[static_cast<size_t>(i)], part.dim());
    if (layout.is_same()) continue;
    const spmd::AxisPtr axis = spmd::InternAxis(AxisMesh(mesh, i));
    spmd::Sizes whole = activation.sizes().vec();
    if (layout.is_shard()) whole[static_cast<size_t>(layout.dim)] *= axis->size;
    activation = spmd::Wrap(activation, layout, axis, whole);
  }
  return activation;
}

at::Tensor shard(const at::Tensor& whole, const DeviceMesh& mesh, int64_t dim) {
  return redistribute(whole, mesh, Shard(dim));
}

at::Tensor to_local(const at::Tensor& activation) {
  at::Tensor part = activation;
  while (spmd::Sharded* sharded = spmd::AsSharded(part)) {
    spmd::Settle(*sharded);
    part = sharded->local;
  }
  return part;
}

at::Tensor full_tensor(const at::Tensor& activation) {
  at::Tensor whole = activation;
  while (spmd::Sharded* sharded = spmd::AsSharded(whole)) {
    whole = spmd::Operand(whole, sharded->axis).To(spmd::Layout::Same());
  }
  return whole;
}

at::Tensor redistribute(const at::Tensor& activation, const DeviceMesh& mesh,
                        const Placement& placement) {
  spmd::InstallHandler();
  const spmd::AxisPtr axis = spmd::InternAxis(mesh);
  const spmd::Layout layout = spmd::ToLayout(placement, activation.dim());
  spmd::Sharded* outer = spmd::AsSharded(activation);
  if (outer != nullptr && outer->axis->level < axis->level) {
    spmd::Settle(*outer);
    const at::Tensor part = redistribute(outer->local, mesh, placement);
    return spmd::Wrap(part, outer->layout, outer->axis, outer->sizes().vec());
  }
  const spmd::Operand operand(activation, axis);
  return spmd::Wrap(operand.To(layout), layout, axis, operand.sizes());
}

std::vector<AxisLayout> layout_of(const at::Tensor& activation) {
  std::vector<AxisLayout> layouts;
  at::Tensor part = activation;
  while (spmd::Sharded* sharded = spmd::AsSharded(part)) {
    spmd::Settle(*sharded);
    layouts.push_back(
        {sharded->axis->mesh, spmd::NearestPlacement(sharded->layout)});
    part = sharded->local;
  }
  return layouts;
}

}  // namespace fsdp
