// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/local_parts.h"

#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/mesh/placement.h"

namespace fsdp {
namespace {

// The boxes are products of intervals, one in every dimension, and the local
// tensor holds the intervals one after the other. Returns where each interval
// begins in the local tensor.
std::vector<std::map<int64_t, int64_t>> LocalBegins(
    const std::vector<dcp::Box>& boxes) {
  std::vector<std::map<int64_t, int64_t>> begins(boxes[0].offsets.size());
  for (size_t d = 0; d < begins.size(); ++d) {
    int64_t next = 0;
    for (const dcp::Box& box : boxes) {
      if (begins[d].emplace(box.offsets[d], next).second) next += box.sizes[d];
    }
  }
  return begins;
}

}  // namespace

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
    const std::vector<dcp::Box> boxes = spec.local_boxes();
    if (boxes.size() == 1) {
      parts.push_back({boxes[0], tensor.to_local()});
      return parts;
    }
    const std::vector<std::map<int64_t, int64_t>> begins = LocalBegins(boxes);
    for (const dcp::Box& box : boxes) {
      at::Tensor local = tensor.to_local();
      for (size_t d = 0; d < begins.size(); ++d) {
        local = local.narrow(static_cast<int64_t>(d),
                             begins[d].at(box.offsets[d]), box.sizes[d]);
      }
      parts.push_back({box, std::move(local)});
    }
    return parts;
  });
}

}  // namespace fsdp
