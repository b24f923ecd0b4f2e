// SPDX-License-Identifier: Apache-2.0

#include "proto/messages/layout_messages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/tensor/parallel_plan.h"
#include "proto/messages/field_checks.h"

namespace dcp {
namespace {

namespace v1 = ::tessera::v1;

using messages::CheckPattern;
using messages::Index;
using messages::Invalid;
using messages::kMaxPatternBytes;
using messages::Text;

// Placement rules: each is tried on every name.
constexpr int kMaxPlacementRules = 10'000;

// Meshes besides the first one: dense and expert parameters have one each.
constexpr int kMaxOtherMeshes = 16;

// Axes in a mesh; each costs time for each part of each tensor. PyTorch's own
// meshes have four or five.
constexpr int kMaxAxes = 16;

bool IsAxisName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxPatternBytes &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '-';
         });
}

absl::Status CheckDim(int64_t dim, absl::string_view field) {
  if (dim >= 0 && dim < static_cast<int64_t>(kMaxDims)) return absl::OkStatus();
  return Invalid(absl::StrCat(field, ".dim"), " is ", dim, ": 0 to ",
                 kMaxDims - 1, " are allowed");
}

// A rule's mesh; `rule` is the field.
absl::StatusOr<const Mesh*> MeshNamed(absl::string_view name, const Mesh& mesh,
                                      absl::Span<const NamedMesh> others,
                                      absl::string_view rule) {
  if (name.empty()) return &mesh;
  for (const NamedMesh& other : others) {
    if (other.name == name) return &other.mesh;
  }
  return Invalid(absl::StrCat(rule, ".mesh"), " is '", Text(name),
                 "': no other mesh has that name");
}

}  // namespace

absl::StatusOr<Box> BoxFromProto(const v1::Box& box, absl::string_view field) {
  if (box.offsets_size() != box.sizes_size()) {
    return Invalid(field, " has ", box.offsets_size(), " offsets and ",
                   box.sizes_size(), " sizes: the numbers must be equal");
  }
  if (box.sizes_size() > static_cast<int>(kMaxDims)) {
    return Invalid(field, " has ", box.sizes_size(), " dimensions: at most ",
                   kMaxDims, " are allowed");
  }
  for (int d = 0; d < box.sizes_size(); ++d) {
    if (box.offsets(d) < 0) {
      return Invalid(Index(absl::StrCat(field, ".offsets"), d), " is ",
                     box.offsets(d), ": must not be negative");
    }
    if (box.sizes(d) < 0) {
      return Invalid(Index(absl::StrCat(field, ".sizes"), d), " is ",
                     box.sizes(d), ": must not be negative");
    }
  }
  return Box{.offsets = Dims(box.offsets().begin(), box.offsets().end()),
             .sizes = Dims(box.sizes().begin(), box.sizes().end())};
}

absl::StatusOr<Mesh> MeshFromProto(const v1::Mesh& mesh,
                                   absl::string_view field) {
  if (mesh.axes_size() < 1 || mesh.axes_size() > kMaxAxes) {
    return Invalid(absl::StrCat(field, ".axes"), " has ", mesh.axes_size(),
                   " entries: 1 to ", kMaxAxes, " are allowed");
  }
  Mesh result;
  int64_t num_ranks = 1;
  for (int a = 0; a < mesh.axes_size(); ++a) {
    const v1::Mesh::Axis& axis = mesh.axes(a);
    const std::string where = Index(absl::StrCat(field, ".axes"), a);
    if (!IsAxisName(axis.name())) {
      return Invalid(absl::StrCat(where, ".name"), " is '", Text(axis.name()),
                     "': letters, digits, _ and - are allowed");
    }
    for (const Mesh::Axis& other : result.axes) {
      if (other.name != axis.name()) continue;
      return Invalid(absl::StrCat(where, ".name"), " is '", axis.name(),
                     "': another axis has that name");
    }
    if (axis.size() < 1) {
      return Invalid(absl::StrCat(where, ".size"), " is ", axis.size(),
                     ": must be 1 or more");
    }
    if (axis.size() > kMaxRanks / num_ranks) {
      return Invalid(field, " has more than ", kMaxRanks, " ranks");
    }
    num_ranks *= axis.size();
    result.axes.push_back({.name = axis.name(), .size = axis.size()});
  }
  return result;
}

absl::StatusOr<Dims> CoordinateFromProto(
    const google::protobuf::RepeatedField<int64_t>& coordinate,
    const Mesh& mesh, absl::string_view field) {
  if (static_cast<size_t>(coordinate.size()) != mesh.axes.size()) {
    return Invalid(field, " has ", coordinate.size(), " entries: the mesh has ",
                   mesh.axes.size(), " axes");
  }
  for (int a = 0; a < coordinate.size(); ++a) {
    const Mesh::Axis& axis = mesh.axes[static_cast<size_t>(a)];
    if (coordinate[a] >= 0 && coordinate[a] < axis.size) continue;
    return Invalid(Index(field, a), " is ", coordinate[a], ": axis '",
                   axis.name, "' has 0 to ", axis.size - 1);
  }
  return Dims(coordinate.begin(), coordinate.end());
}

absl::StatusOr<Placement> PlacementFromProto(const v1::Placement& placement,
                                             absl::string_view field) {
  switch (placement.kind_case()) {
    case v1::Placement::kReplicate:
      return Placement{};
    case v1::Placement::kShard:
      DCP_RETURN_IF_ERROR(
          CheckDim(placement.shard().dim(), absl::StrCat(field, ".shard")));
      return Placement{.kind = Placement::Kind::kShard,
                       .dim = placement.shard().dim()};
    case v1::Placement::kStridedShard: {
      const auto& strided = placement.strided_shard();
      const std::string where = absl::StrCat(field, ".strided_shard");
      DCP_RETURN_IF_ERROR(CheckDim(strided.dim(), where));
      if (strided.split_factor() < 1 || strided.split_factor() > kMaxRanks) {
        return Invalid(absl::StrCat(where, ".split_factor"), " is ",
                       strided.split_factor(), ": 1 to ", kMaxRanks,
                       " are allowed");
      }
      return Placement{.kind = Placement::Kind::kStridedShard,
                       .dim = strided.dim(),
                       .split_factor = strided.split_factor()};
    }
    case v1::Placement::KIND_NOT_SET:
      break;
  }
  return Invalid(field, " must set replicate, shard or strided_shard");
}

absl::StatusOr<std::vector<PlacementRule>> PlacementRulesFromProto(
    const google::protobuf::RepeatedPtrField<v1::PlacementRule>& rules,
    const Mesh& mesh, absl::Span<const NamedMesh> others,
    absl::string_view field) {
  if (rules.size() > kMaxPlacementRules) {
    return Invalid(field, " has ", rules.size(), " entries: at most ",
                   kMaxPlacementRules, " are allowed");
  }
  std::vector<PlacementRule> result;
  for (int i = 0; i < rules.size(); ++i) {
    const v1::PlacementRule& rule = rules[i];
    const std::string where = Index(field, i);
    DCP_RETURN_IF_ERROR(
        CheckPattern(rule.glob(), absl::StrCat(where, ".glob")));
    DCP_ASSIGN_OR_RETURN(const Mesh* const its_mesh,
                         MeshNamed(rule.mesh(), mesh, others, where));
    if (static_cast<size_t>(rule.placements_size()) != its_mesh->axes.size()) {
      return Invalid(absl::StrCat(where, ".placements"), " has ",
                     rule.placements_size(), " entries: the mesh has ",
                     its_mesh->axes.size(), " axes");
    }
    PlacementRule& made = result.emplace_back();
    made.glob = rule.glob().empty() ? "*" : rule.glob();
    made.mesh = rule.mesh();
    for (int a = 0; a < rule.placements_size(); ++a) {
      DCP_ASSIGN_OR_RETURN(
          made.placements.emplace_back(),
          PlacementFromProto(rule.placements(a),
                             Index(absl::StrCat(where, ".placements"), a)));
    }
  }
  return result;
}

absl::StatusOr<std::vector<NamedMesh>> NamedMeshesFromProto(
    const google::protobuf::RepeatedPtrField<v1::NamedMesh>& meshes,
    absl::string_view field) {
  if (meshes.size() > kMaxOtherMeshes) {
    return Invalid(field, " has ", meshes.size(), " entries: at most ",
                   kMaxOtherMeshes, " are allowed");
  }
  std::vector<NamedMesh> result;
  for (int i = 0; i < meshes.size(); ++i) {
    const std::string where = Index(field, i);
    if (!IsAxisName(meshes[i].name())) {
      return Invalid(absl::StrCat(where, ".name"), " is '",
                     Text(meshes[i].name()),
                     "': letters, digits, _ and - are allowed");
    }
    DCP_ASSIGN_OR_RETURN(
        Mesh mesh,
        MeshFromProto(meshes[i].mesh(), absl::StrCat(where, ".mesh")));
    result.push_back({.name = meshes[i].name(), .mesh = std::move(mesh)});
  }
  return result;
}

absl::StatusOr<TensorParallel> TensorParallelFromProto(
    const v1::TensorParallel& parallel, absl::string_view field) {
  TensorParallel result;
  if (!parallel.axis().empty()) {
    if (!IsAxisName(parallel.axis())) {
      return Invalid(absl::StrCat(field, ".axis"), " is '",
                     Text(parallel.axis()),
                     "': letters, digits, _ and - are allowed");
    }
    result.axis = parallel.axis();
  }
  for (int i = 0; i < parallel.entries_size(); ++i) {
    const v1::TensorParallel::Entry& entry = parallel.entries(i);
    const std::string where = Index(absl::StrCat(field, ".entries"), i);
    DCP_RETURN_IF_ERROR(
        CheckPattern(entry.pattern(), absl::StrCat(where, ".pattern")));
    absl::StatusOr<ParallelStyle> style = ParseParallelStyle(entry.style());
    if (!style.ok()) {
      return Invalid(absl::StrCat(where, ".style"), " ",
                     Text(style.status().message()));
    }
    if (entry.has_embedding()) style->embedding = entry.embedding();
    const absl::Status added =
        result.plan.Add({.pattern = entry.pattern(), .style = *style});
    if (!added.ok()) {
      return Invalid(absl::StrCat(where, ".pattern"), ": ",
                     Text(added.message()));
    }
  }
  return result;
}

void BoxToProto(const Box& box, v1::Box& proto) {
  proto.mutable_offsets()->Add(box.offsets.begin(), box.offsets.end());
  proto.mutable_sizes()->Add(box.sizes.begin(), box.sizes.end());
}

void MeshToProto(const Mesh& mesh, v1::Mesh& proto) {
  for (const Mesh::Axis& axis : mesh.axes) {
    v1::Mesh::Axis& made = *proto.add_axes();
    made.set_name(axis.name);
    made.set_size(axis.size);
  }
}

void PlacementToProto(const Placement& placement, v1::Placement& proto) {
  switch (placement.kind) {
    case Placement::Kind::kReplicate:
      proto.mutable_replicate();
      break;
    case Placement::Kind::kShard:
      proto.mutable_shard()->set_dim(placement.dim);
      break;
    case Placement::Kind::kStridedShard:
      proto.mutable_strided_shard()->set_dim(placement.dim);
      proto.mutable_strided_shard()->set_split_factor(placement.split_factor);
      break;
  }
}

void PlacementRuleToProto(const PlacementRule& rule, v1::PlacementRule& proto) {
  proto.set_glob(rule.glob);
  proto.set_mesh(rule.mesh);
  for (const Placement& placement : rule.placements) {
    PlacementToProto(placement, *proto.add_placements());
  }
}

void NamedMeshToProto(const NamedMesh& mesh, v1::NamedMesh& proto) {
  proto.set_name(mesh.name);
  MeshToProto(mesh.mesh, *proto.mutable_mesh());
}

void TensorParallelToProto(const TensorParallel& parallel,
                           v1::TensorParallel& proto) {
  proto.set_axis(parallel.axis);
  for (const ParallelPlan::Entry& entry : parallel.plan.entries()) {
    v1::TensorParallel::Entry& made = *proto.add_entries();
    made.set_pattern(entry.pattern);
    made.set_style(std::string(ParallelKindName(entry.style.kind)));
    if (entry.style.embedding.has_value()) {
      made.set_embedding(*entry.style.embedding);
    }
  }
}

}  // namespace dcp
