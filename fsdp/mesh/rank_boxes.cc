// SPDX-License-Identifier: Apache-2.0
// Tested by tests/fsdp/checkpoint/state/local_parts_test.cc.
#include "fsdp/mesh/rank_boxes.h"

#include <cstddef>
#include <map>
#include <utility>

#include "c10/util/Exception.h"

namespace fsdp {

std::vector<dcp::Box> RankBoxes(const std::vector<int64_t>& shape,
                                const DeviceMesh& mesh,
                                const dcp::Placements& placements,
                                const std::vector<int64_t>& coordinate) {
  auto boxes = dcp::LocalBoxes(shape, mesh.to_dcp(), placements, coordinate);
  TORCH_CHECK_VALUE(boxes.ok(), boxes.status().ToString());
  return *std::move(boxes);
}

// The boxes are products of intervals, one in every dimension, and the local
// tensor holds the intervals one after the other.
std::vector<LocalBox> PlacedBoxes(std::vector<dcp::Box> boxes) {
  std::vector<LocalBox> placed;
  for (dcp::Box& box : boxes) {
    dcp::Dims begin(box.sizes.size(), 0);
    placed.push_back({.box = std::move(box), .begin = std::move(begin)});
  }
  const size_t num_dims = placed.size() > 1 ? placed[0].begin.size() : 0;
  for (size_t d = 0; d < num_dims; ++d) {
    std::map<int64_t, int64_t> begins;  // by the interval's offset
    int64_t next = 0;
    for (LocalBox& part : placed) {
      const auto [it, added] = begins.emplace(part.box.offsets[d], next);
      if (added) next += part.box.sizes[d];
      part.begin[d] = it->second;
    }
  }
  return placed;
}

}  // namespace fsdp
