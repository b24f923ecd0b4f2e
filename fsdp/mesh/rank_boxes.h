// SPDX-License-Identifier: Apache-2.0
// Which boxes of a whole tensor a rank of a mesh holds, and where they lie in
// the local tensor. Pure; for the thread that trains.
#ifndef FSDP_MESH_RANK_BOXES_H_
#define FSDP_MESH_RANK_BOXES_H_

#include <cstdint>
#include <vector>

#include "dcp/tensor/box.h"
#include "dcp/tensor/placement.h"
#include "fsdp/mesh/device_mesh.h"

namespace fsdp {

// The boxes, in a tensor with `shape`, of the rank at `coordinate` on `mesh`.
// Throws c10::ValueError when dcp::LocalBoxes fails.
std::vector<dcp::Box> RankBoxes(const std::vector<int64_t>& shape,
                                const DeviceMesh& mesh,
                                const dcp::Placements& placements,
                                const std::vector<int64_t>& coordinate);

struct LocalBox {
  dcp::Box box;     // in the whole tensor
  dcp::Dims begin;  // where it begins in the local tensor, in elements
};

// One rank's boxes, and where they lie in the local tensor.
std::vector<LocalBox> PlacedBoxes(std::vector<dcp::Box> boxes);

}  // namespace fsdp

#endif  // FSDP_MESH_RANK_BOXES_H_
