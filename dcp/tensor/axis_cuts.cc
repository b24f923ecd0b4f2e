// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/axis_cuts.h"

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "dcp/base/status.h"

namespace dcp {

bool NamesAxes(absl::string_view spec) { return absl::StrContains(spec, ':'); }

absl::StatusOr<std::vector<AxisCut>> ParseAxisCuts(absl::string_view spec) {
  if (absl::StrContains(spec, "SS")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "placements \"", spec,
        "\": a strided shard follows from the order of the axes; write S(dim) "
        "for each axis, the first to cut first"));
  }
  std::vector<AxisCut> cuts;
  for (const absl::string_view part : absl::StrSplit(spec, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    const absl::string_view axis = absl::StripAsciiWhitespace(pair.first);
    if (axis.empty() || !absl::StrContains(part, ':')) {
      return absl::InvalidArgumentError(absl::StrCat(
          "placements \"", spec, "\": \"", part,
          "\" is not AXIS:S(dim) or AXIS:R; either all placements name their "
          "axes, or none does"));
    }
    for (const AxisCut& other : cuts) {
      if (other.axis != axis) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "placements \"", spec, "\": the axis ", axis, " is named twice"));
    }
    DCP_ASSIGN_OR_RETURN(const Placements placement,
                         ParsePlacements(pair.second));
    cuts.push_back({.axis = std::string(axis), .placement = placement[0]});
  }
  return cuts;
}

absl::StatusOr<Placements> PlacementsForCuts(const Mesh& mesh,
                                             absl::Span<const AxisCut> cuts) {
  Placements placements(mesh.axes.size());
  for (const AxisCut& cut : cuts) {
    size_t axis = 0;
    while (axis < mesh.axes.size() && mesh.axes[axis].name != cut.axis) ++axis;
    if (axis == mesh.axes.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the mesh ", ToString(mesh), " has no axis ", cut.axis));
    }
    if (cut.placement.kind == Placement::Kind::kReplicate) continue;
    // Axes to the right that have cut the dimension already.
    int64_t split_factor = 1;
    for (size_t right = axis + 1; right < mesh.axes.size(); ++right) {
      const Placement& other = placements[right];
      if (other.kind != Placement::Kind::kReplicate &&
          other.dim == cut.placement.dim) {
        split_factor *= mesh.axes[right].size;
      }
    }
    placements[axis] = cut.placement;
    if (split_factor == 1) continue;
    placements[axis].kind = Placement::Kind::kStridedShard;
    placements[axis].split_factor = split_factor;
  }
  return placements;
}

}  // namespace dcp
