// SPDX-License-Identifier: Apache-2.0
// Computes local boxes and shapes from placements.
//
// Tested by tests/fsdp/mesh/dtensor_test.cc.
#include "fsdp/mesh/dtensor_spec.h"

#include <optional>
#include <utility>

#include "c10/util/Exception.h"
#include "dcp/tensor/placement.h"
#include "fsdp/mesh/rank_boxes.h"

namespace fsdp {

std::vector<dcp::Box> DTensorSpec::local_boxes() const {
  const std::optional<std::vector<int64_t>> coordinate = mesh.get_coordinate();
  if (coordinate.has_value()) {
    return RankBoxes(shape, mesh, to_dcp(WithoutPartials(placements)),
                     *coordinate);
  }
  return {{.offsets = dcp::Dims(shape.begin(), shape.end()),
           .sizes = dcp::Dims(shape.size(), 0)}};
}

std::vector<int64_t> DTensorSpec::local_shape() const {
  const std::optional<std::vector<int64_t>> coordinate = mesh.get_coordinate();
  if (!coordinate.has_value()) return {0};
  Normalized(placements, mesh, static_cast<int64_t>(shape.size()));
  // Dimension by dimension: a rank without rows still has the other sizes.
  std::vector<int64_t> result;
  for (int64_t dim = 0; dim < static_cast<int64_t>(shape.size()); ++dim) {
    Placements of_dim;
    for (const Placement& p : placements) {
      if (!p.is_shard(dim)) {
        of_dim.push_back(Replicate());
      } else if (p.kind() == Placement::Kind::kShard) {
        of_dim.push_back(Shard(0));
      } else {
        of_dim.push_back(StridedShard(0, p.split_factor()));
      }
    }
    int64_t held = 0;
    for (const dcp::Box& box :
         RankBoxes({shape[dim]}, mesh, to_dcp(of_dim), *coordinate)) {
      held += box.sizes[0];
    }
    result.push_back(held);
  }
  return result;
}

Placements Normalized(const Placements& placements, const DeviceMesh& mesh,
                      int64_t ndim) {
  TORCH_CHECK_VALUE(static_cast<int64_t>(placements.size()) == mesh.ndim(),
                    placements.size(), " placements, ", to_string(placements),
                    ", for ", to_string(mesh), " of ", mesh.ndim(),
                    " axes; give one per axis");
  Placements result;
  for (const Placement& p : placements) {
    result.push_back(p.is_shard() ? p.normalized(ndim) : p);
  }
  return result;
}

Placements WithoutPartials(const Placements& placements) {
  Placements result = placements;
  for (Placement& p : result) {
    if (p.is_partial()) p = Replicate();
  }
  return result;
}

}  // namespace fsdp
