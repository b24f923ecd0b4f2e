// SPDX-License-Identifier: Apache-2.0
// MeshAxis: one mesh axis as a set of places in a root grid's row-major order.
// It makes up slices, flattened axes and other views of one grid. For
// device_mesh.cc; everything but the group is a pure value.
#ifndef FSDP_MESH_MESH_AXIS_H_
#define FSDP_MESH_MESH_AXIS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/mesh/process_group.h"

namespace fsdp {

// `size` places, `stride` places apart.
struct MeshExtent {
  int64_t size;
  int64_t stride;

  friend auto operator<=>(const MeshExtent&, const MeshExtent&) = default;
};

struct MeshAxis {
  std::string name;
  // The slowest first; one for each root axis that this axis covers.
  std::vector<MeshExtent> extents;
  // The group of the ranks on this axis, through this rank.
  ProcessGroup group;
};

// The axes of a row-major grid with this shape, where places are `stride`
// apart. `names` are as many as the axes, or none.
std::vector<MeshAxis> GridAxes(const std::vector<int64_t>& shape,
                               const std::vector<std::string>& names,
                               int64_t stride = 1);

int64_t AxisSize(const MeshAxis& axis);

// The fewest extents that give the same places in the same order: axes with
// equal extents have the same ranks.
std::vector<MeshExtent> Canonical(const MeshAxis& axis);

// Whether a step on one axis may also be a step on the other.
bool Overlap(const MeshAxis& a, const MeshAxis& b);

// The offset of each index on `axis` in the root's order, from the first.
std::vector<int64_t> AxisOffsets(const MeshAxis& axis);

// The index on `axis` for the place `index` in the root's order.
int64_t CoordinateOn(const MeshAxis& axis, int64_t index);

// The places that `axes` span, row-major, through the place `through`.
std::vector<int64_t> SpannedPlaces(const std::vector<MeshAxis>& axes,
                                   int64_t through);

}  // namespace fsdp

#endif  // FSDP_MESH_MESH_AXIS_H_
