// SPDX-License-Identifier: Apache-2.0
// AxisCuts: a tensor's layout on a mesh, given by axis names in the order in
// which they cut the tensor: "tp:S(0),dp:S(0)" for a weight that tensor
// parallelism has cut before FSDP cuts the parts. Placements, in contrast,
// apply in the order of the mesh's axes, so an axis that cuts a dimension after
// one to the right of it becomes a strided shard, as PyTorch's fully_shard
// makes it (torch/distributed/fsdp/_fully_shard/_fsdp_param.py in 2.11). Pure;
// any thread.
#ifndef DCP_TENSOR_AXIS_CUTS_H_
#define DCP_TENSOR_AXIS_CUTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/tensor/placement.h"

namespace dcp {

struct AxisCut {
  std::string axis;
  Placement placement;  // Shard or Replicate

  friend bool operator==(const AxisCut&, const AxisCut&) = default;
};

// Whether a text is in ParseAxisCuts' form, not in that of ParsePlacements.
bool NamesAxes(absl::string_view spec);

// "tp:S(0),dp:S(0)". A strided shard is refused, because it follows from the
// order, and so is an axis that is named twice.
absl::StatusOr<std::vector<AxisCut>> ParseAxisCuts(absl::string_view spec);

// One placement for each mesh axis; axes without a cut replicate.
// InvalidArgument for an axis that the mesh does not have.
absl::StatusOr<Placements> PlacementsForCuts(const Mesh& mesh,
                                             absl::Span<const AxisCut> cuts);

}  // namespace dcp

#endif  // DCP_TENSOR_AXIS_CUTS_H_
