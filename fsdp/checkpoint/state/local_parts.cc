// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/local_parts.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/mesh/placement.h"
#include "fsdp/mesh/rank_boxes.h"

namespace fsdp {

absl::StatusOr<std::vector<LocalPart>> FindLocalParts(const DTensor& tensor) {
  const DTensorSpec& spec = tensor.spec();
  for (const Placement& placement : spec.placements) {
    if (placement.is_partial()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "placed ", to_string(spec.placements),
          ": a partial value is not stored; redistribute it first"));
    }
  }
  return CatchTorch([&] {
    std::vector<LocalPart> parts;
    if (!spec.mesh.get_coordinate().has_value()) return parts;
    const std::vector<LocalBox> boxes = PlacedBoxes(spec.local_boxes());
    if (boxes.size() == 1) {
      parts.push_back({boxes[0].box, tensor.to_local()});
      return parts;
    }
    for (const LocalBox& part : boxes) {
      at::Tensor local = tensor.to_local();
      for (size_t d = 0; d < part.begin.size(); ++d) {
        local = local.narrow(static_cast<int64_t>(d), part.begin[d],
                             part.box.sizes[d]);
      }
      parts.push_back({part.box, std::move(local)});
    }
    return parts;
  });
}

}  // namespace fsdp
