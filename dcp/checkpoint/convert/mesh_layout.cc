// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/mesh_layout.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/glob_set.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/planned_tensor.h"
#include "dcp/tensor/axis_cuts.h"
#include "dcp/tensor/parallel_plan.h"

namespace dcp {
namespace {

// Axes for tensor, context, expert, expert tensor and pipeline parallelism,
// with TorchTitan's names (torchtitan/distributed/parallel_dims.py of 0.2).
struct ParallelAxis {
  absl::string_view name;
  absl::string_view advice;  // advice for an axis without placements
};

constexpr absl::string_view kTensorAdvice =
    "give a plan of tensor parallelism with the option tensor_parallel, or a "
    "rule with the option placements, such as '*.wq.weight=tp:S(0),dp:S(0)'";
constexpr absl::string_view kExpertAdvice =
    "give experts a mesh of their own with the option other_meshes, such as "
    "experts:efsdp=2,ep=2, and a rule with the option placements, such as "
    "'*.experts.*@experts=ep:S(0),efsdp:S(0)'";

constexpr std::array<ParallelAxis, 5> kParallelAxes = {{
    {"tp", kTensorAdvice},
    {"cp",
     "FSDP shards over the axes dp and cp together, so make them one axis, "
     "such as fsdp=4, or give a rule with the option placements"},
    {"ep", kExpertAdvice},
    {"etp", kExpertAdvice},
    {"pp",
     "stages of a pipeline keep the names of the whole model, and each loads "
     "its own, so leave the axis out"},
}};

const ParallelAxis* FindParallelAxis(absl::string_view name) {
  for (const ParallelAxis& axis : kParallelAxes) {
    if (axis.name == name) return &axis;
  }
  return nullptr;
}

// The mesh's index in the result of DestinationMeshes, or nullopt if it is not
// in there.
std::optional<size_t> MeshIndex(const ConvertOptions& options,
                                absl::string_view name) {
  if (name.empty()) return 0;
  for (size_t i = 0; i < options.other_meshes.size(); ++i) {
    if (options.other_meshes[i].name == name) return i + 1;
  }
  return std::nullopt;
}

bool HasRules(const ConvertOptions& options, absl::string_view mesh) {
  return std::any_of(
      options.placements.begin(), options.placements.end(),
      [&](const PlacementRule& rule) { return rule.mesh == mesh; });
}

// Looks at the first mesh; the others always have rules.
absl::Status CheckAxes(const Mesh& mesh, const ConvertOptions& options) {
  if (HasRules(options, "")) return absl::OkStatus();
  for (const Mesh::Axis& axis : mesh.axes) {
    const ParallelAxis* const parallel = FindParallelAxis(axis.name);
    const bool is_planned = options.tensor_parallel.has_value() &&
                            options.tensor_parallel->axis == axis.name;
    if (parallel == nullptr || axis.size == 1 || is_planned) continue;
    return WithOptions(
        absl::InvalidArgumentError(absl::StrCat(
            "nothing says which tensors the axis ", axis.name, " of the mesh ",
            ToString(mesh), " cuts: ", parallel->advice)),
        NamedOptions(parallel->advice));
  }
  return absl::OkStatus();
}

absl::Status CheckOtherMeshes(const ConvertOptions& options) {
  const int64_t num_ranks = options.mesh->num_ranks();
  for (size_t i = 0; i < options.other_meshes.size(); ++i) {
    const NamedMesh& other = options.other_meshes[i];
    if (other.name.empty() || MeshIndex(options, other.name) != i + 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("two meshes have the name '", other.name, "'"));
    }
    if (other.mesh.num_ranks() != num_ranks) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the mesh ", other.name, " (", ToString(other.mesh), ") has ",
          other.mesh.num_ranks(), " ranks, but the mesh ",
          ToString(*options.mesh), " has ", num_ranks,
          "; both are arrangements of the same ranks"));
    }
    if (!HasRules(options, other.name)) {
      return OptionError(absl::StatusCode::kInvalidArgument,
                         "no tensor lies on the mesh ", other.name,
                         ": give a rule with ", OptionName{"placements"},
                         ", such as '*.experts.*@", other.name, "=S(0),R'");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRules(const ConvertOptions& options) {
  const std::vector<Mesh> meshes = DestinationMeshes(options);
  for (const PlacementRule& rule : options.placements) {
    const std::optional<size_t> index = MeshIndex(options, rule.mesh);
    if (!index.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("placement '", rule.glob, "' is for the mesh ",
                       rule.mesh, ", which is not there"));
    }
    const size_t num_axes = meshes[*index].axes.size();
    if (rule.placements.size() != num_axes) {
      return absl::InvalidArgumentError(
          absl::StrCat("placement '", rule.glob, "=", ToString(rule.placements),
                       "' has ", rule.placements.size(), " placements for the ",
                       num_axes, " axes of the mesh"));
    }
  }
  return absl::OkStatus();
}

// A scalar has no dimension to shard. A pattern applies only to tensors that
// have one; a name always applies, and a scalar is then refused.
bool AppliesTo(const PlacementRule& rule, const OutputEntry& entry) {
  return !entry.tensor->shape.empty() || rule.glob == entry.fqn;
}

// Without a rule or a plan.
Placements PlacementsWithoutRule(const Mesh& mesh, const Dims& shape) {
  Placements placements = DefaultPlacements(mesh, shape);
  for (size_t a = 0; a < placements.size(); ++a) {
    if (FindParallelAxis(mesh.axes[a].name) != nullptr) placements[a] = {};
  }
  return placements;
}

// Applies the plan and counts the matches.
class PlanReader {
 public:
  explicit PlanReader(const ConvertOptions& options)
      : mesh_(*options.mesh),
        parallel_(*options.tensor_parallel),
        used_(parallel_.plan.entries().size()) {}

  // The placements for a tensor that no rule matches.
  absl::StatusOr<Placements> Place(absl::string_view name, const Dims& shape) {
    DCP_ASSIGN_OR_RETURN(const PlannedTensor planned,
                         FindPlanned(parallel_.plan, name, shape.size()));
    Placements placements = PlacementsWithoutRule(mesh_, shape);
    if (planned.entry == nullptr) return placements;
    used_[static_cast<size_t>(planned.entry -
                              parallel_.plan.entries().data())] = true;
    std::vector<AxisCut> cuts = {
        {.axis = parallel_.axis, .placement = planned.placement}};
    for (size_t a = 0; a < mesh_.axes.size(); ++a) {
      if (mesh_.axes[a].name == parallel_.axis) continue;
      cuts.push_back({.axis = mesh_.axes[a].name, .placement = placements[a]});
    }
    return PlacementsForCuts(mesh_, cuts);
  }

  // For an entry that cuts parameters but has matched none.
  absl::Status CheckUsed() const {
    for (size_t i = 0; i < used_.size(); ++i) {
      const ParallelPlan::Entry& entry = parallel_.plan.entries()[i];
      const bool cuts = entry.style.kind == ParallelStyle::Kind::kColwise ||
                        entry.style.kind == ParallelStyle::Kind::kRowwise;
      if (used_[i] || !cuts) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "'", entry.pattern, "' of the plan, which is ",
          ParallelKindName(entry.style.kind),
          ", matches no parameter of the checkpoint; leave it out, or correct "
          "it"));
    }
    return absl::OkStatus();
  }

 private:
  const Mesh& mesh_;
  const TensorParallel& parallel_;
  std::vector<bool> used_;
};

}  // namespace

absl::Status CheckMeshes(const ConvertOptions& options) {
  if (!options.mesh.has_value()) {
    if (!options.placements.empty()) {
      return absl::InvalidArgumentError("placements require a mesh");
    }
    if (options.tensor_parallel.has_value() || !options.other_meshes.empty()) {
      return absl::InvalidArgumentError(
          "a plan and other meshes require a mesh");
    }
    return absl::OkStatus();
  }
  if (options.tensor_parallel.has_value()) {
    const std::string& axis = options.tensor_parallel->axis;
    const std::vector<AxisCut> cut = {{.axis = axis, .placement = {}}};
    DCP_RETURN_IF_ERROR(Annotate(PlacementsForCuts(*options.mesh, cut).status(),
                                 "the plan of tensor parallelism"));
  }
  DCP_RETURN_IF_ERROR(CheckRules(options));
  DCP_RETURN_IF_ERROR(CheckAxes(*options.mesh, options));
  return CheckOtherMeshes(options);
}

std::vector<Mesh> DestinationMeshes(const ConvertOptions& options) {
  std::vector<Mesh> meshes = {*options.mesh};
  for (const NamedMesh& other : options.other_meshes) {
    meshes.push_back(other.mesh);
  }
  return meshes;
}

absl::StatusOr<std::vector<EntryLayout>> LayoutEntries(
    absl::Span<const OutputEntry> entries, const ConvertOptions& options) {
  std::vector<EntryLayout> layouts;
  std::vector<bool> used(options.placements.size());
  std::optional<PlanReader> plan;
  if (options.tensor_parallel.has_value()) plan.emplace(options);
  for (const OutputEntry& entry : entries) {
    const Dims shape = entry.tensor != nullptr ? entry.tensor->shape : Dims();
    EntryLayout& layout = layouts.emplace_back();
    layout.placements = PlacementsWithoutRule(*options.mesh, shape);
    if (entry.tensor == nullptr) continue;
    const PlacementRule* chosen = nullptr;
    for (size_t i = 0; i < options.placements.size(); ++i) {
      const PlacementRule& rule = options.placements[i];
      if (!MatchesGlob(rule.glob, entry.fqn)) continue;
      used[i] = true;
      if (AppliesTo(rule, entry)) chosen = &rule;
    }
    if (plan.has_value()) {
      // Also for tensors that a rule places, so that the plan's entries count
      // as used.
      absl::StatusOr<Placements> planned = plan->Place(entry.fqn, shape);
      if (chosen == nullptr && !planned.ok()) return planned.status();
      if (planned.ok()) layout.placements = *std::move(planned);
    }
    if (chosen == nullptr) continue;
    layout.mesh = *MeshIndex(options, chosen->mesh);
    layout.placements = chosen->placements;
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "placement '", options.placements[i].glob, "' matches no tensor"));
  }
  if (plan.has_value()) DCP_RETURN_IF_ERROR(plan->CheckUsed());
  return layouts;
}

}  // namespace dcp
