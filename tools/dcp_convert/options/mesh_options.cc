// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/options/mesh_options.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "config/parallel_plan.h"
#include "dcp/base/status.h"
#include "dcp/tensor/axis_cuts.h"
#include "dcp/tensor/parallel_plan.h"
#include "dcp/tensor/placement.h"
#include "document/document.h"
#include "tools/options/option_setters.h"

namespace dcp::tools {
namespace {

bool IsMeshName(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
           c == '-';
  });
}

// The mesh that the pattern's end names, after taking that end off; without
// one, the first mesh. Tensor names may contain an @ too.
const Mesh& TakeMesh(const CommandLine& line, PlacementRule& rule) {
  const size_t at = rule.glob.rfind('@');
  if (at == std::string::npos || at == 0) return *line.write.spec.mesh;
  for (const NamedMesh& other : line.write.spec.other_meshes) {
    if (other.name != absl::string_view(rule.glob).substr(at + 1)) continue;
    rule.mesh = other.name;
    rule.glob.resize(at);
    return other.mesh;
  }
  return *line.write.spec.mesh;
}

absl::StatusOr<Placements> PlacementsOn(const Mesh& mesh,
                                        absl::string_view text) {
  if (NamesAxes(text)) {
    DCP_ASSIGN_OR_RETURN(const std::vector<AxisCut> cuts, ParseAxisCuts(text));
    return PlacementsForCuts(mesh, cuts);
  }
  DCP_ASSIGN_OR_RETURN(Placements placements, ParsePlacements(text));
  if (placements.size() == mesh.axes.size()) return placements;
  return absl::InvalidArgumentError(
      absl::StrCat("has ", placements.size(), " placements, but the mesh ",
                   ToString(mesh), " has ", mesh.axes.size()));
}

}  // namespace

absl::Status AddMesh(absl::string_view value, CommandLine& line) {
  const size_t colon = value.find(':');
  if (colon == absl::string_view::npos) {
    if (line.write.spec.mesh.has_value()) {
      return IsNot(value,
                   "the only mesh without a name; write NAME:SPEC for another "
                   "one, such as experts:efsdp=2,ep=2");
    }
    DCP_ASSIGN_OR_RETURN(line.write.spec.mesh, ParseMesh(value));
    return absl::OkStatus();
  }
  const absl::string_view name = value.substr(0, colon);
  if (!IsMeshName(name)) {
    return IsNot(value, "NAME:SPEC, such as experts:efsdp=2,ep=2");
  }
  DCP_ASSIGN_OR_RETURN(Mesh mesh, ParseMesh(value.substr(colon + 1)));
  line.write.spec.other_meshes.push_back(
      {.name = std::string(name), .mesh = std::move(mesh)});
  return absl::OkStatus();
}

absl::Status AddPlacement(absl::string_view value, CommandLine& line) {
  // A pattern may contain '='; placements do not.
  const size_t equals = value.rfind('=');
  if (equals == absl::string_view::npos || equals == 0) {
    return IsNot(value,
                 "GLOB=PLACEMENTS, such as '*.weight=S(0),R' or "
                 "'*.weight=tp:S(0),dp:S(0)'");
  }
  const absl::string_view placements = value.substr(equals + 1);
  DCP_RETURN_IF_ERROR(NamesAxes(placements)
                          ? ParseAxisCuts(placements).status()
                          : ParsePlacements(placements).status());
  line.write.place.emplace_back(value.substr(0, equals), placements);
  return absl::OkStatus();
}

absl::Status ResolveMeshOptions(CommandLine& line) {
  if (!line.write.tp_axis.empty() && line.write.tp_plan.empty()) {
    return absl::InvalidArgumentError("--tp-axis requires --tp-plan");
  }
  if (!line.write.spec.mesh.has_value()) {
    if (line.write.place.empty() && line.write.tp_plan.empty() &&
        line.write.spec.other_meshes.empty()) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        !line.write.place.empty() ? "--place requires --mesh"
        : !line.write.tp_plan.empty()
            ? "--tp-plan requires --mesh"
            : "a mesh with a name requires one without, such as --mesh fsdp=4");
  }
  for (const auto& [glob, placements] : line.write.place) {
    PlacementRule rule;
    rule.glob = glob;
    const Mesh& mesh = TakeMesh(line, rule);
    absl::StatusOr<Placements> resolved = PlacementsOn(mesh, placements);
    DCP_RETURN_IF_ERROR(
        Annotate(resolved.status(), "--place '", glob, "=", placements, "'"));
    rule.placements = *std::move(resolved);
    line.write.spec.placements.push_back(std::move(rule));
  }
  return absl::OkStatus();
}

absl::Status LoadTpPlan(FileSystem& fs, CommandLine& line) {
  if (line.write.tp_plan.empty()) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(
      const std::string text,
      ReadFile(fs, line.write.tp_plan, document::kMaxDocumentBytes,
               /*follow_symlinks=*/true));
  TensorParallel& parallel = line.write.spec.tensor_parallel.emplace();
  DCP_ASSIGN_OR_RETURN(parallel.plan,
                       fsdp::parallel_plan_text(line.write.tp_plan, text));
  if (!line.write.tp_axis.empty()) parallel.axis = line.write.tp_axis;
  return absl::OkStatus();
}

}  // namespace dcp::tools
