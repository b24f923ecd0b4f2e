// SPDX-License-Identifier: Apache-2.0
// DTensorSpec: how a tensor lies on a mesh, and which part of it this rank has.
// A plain value without data; see dtensor.h for the tensor itself. For the
// thread that trains; nothing here communicates.
#ifndef FSDP_MESH_DTENSOR_SPEC_H_
#define FSDP_MESH_DTENSOR_SPEC_H_

#include <cstdint>
#include <vector>

#include "dcp/tensor/box.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/placement.h"

namespace fsdp {

struct DTensorSpec {
  DeviceMesh mesh;
  Placements placements;        // one per mesh axis, dims not negative
  std::vector<int64_t> shape;   // the whole tensor's, in elements
  std::vector<int64_t> stride;  // the whole tensor's, in elements

  // This rank's part: one box, or several when uneven strided shards leave rows
  // that are not adjacent; an empty box when it holds nothing. Partial counts
  // as Replicate. Throws when dcp::LocalBoxes fails.
  std::vector<dcp::Box> local_boxes() const;
  // The shape of this rank's local tensor.
  std::vector<int64_t> local_shape() const;

  friend bool operator==(const DTensorSpec&, const DTensorSpec&) = default;
};

// The placements with dims that are not negative, for a tensor with `ndim`
// dimensions. Throws c10::ValueError unless there is one per mesh axis, and
// c10::IndexError for a dimension that the tensor does not have.
Placements Normalized(const Placements& placements, const DeviceMesh& mesh,
                      int64_t ndim);

// Replaces each Partial with a Replicate: to the geometry, such a tensor is
// whole on every rank.
Placements WithoutPartials(const Placements& placements);

}  // namespace fsdp

#endif  // FSDP_MESH_DTENSOR_SPEC_H_
