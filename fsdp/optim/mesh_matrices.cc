// SPDX-License-Identifier: Apache-2.0
// Tested by tests/fsdp/optim/muon_test.cc.
#include "fsdp/optim/mesh_matrices.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/tensor/placement.h"

namespace fsdp {
namespace {

// One group for all ranks of a mesh.
ProcessGroup JoinedGroup(const DeviceMesh& mesh) {
  if (mesh.ndim() == 1) return mesh.get_group();
  return mesh
      .flatten(absl::StrCat("muon_", absl::StrJoin(mesh.mesh_dim_names(), "_")))
      .get_group();
}

// A rank's place on the axes over which a parameter is not cut.
int64_t CopyNumber(const DTensorSpec& spec,
                   const std::vector<int64_t>& coordinate) {
  int64_t number = 0;
  for (size_t axis = 0; axis < coordinate.size(); ++axis) {
    if (spec.placements[axis].is_shard()) continue;
    number =
        number * spec.mesh.size(static_cast<int64_t>(axis)) + coordinate[axis];
  }
  return number;
}

// The coordinates on `mesh` of the ranks in `group`.
std::vector<std::vector<int64_t>> Coordinates(const DeviceMesh& mesh,
                                              const ProcessGroup& group) {
  std::map<int64_t, int64_t> places;  // by rank in the world
  for (size_t place = 0; place < mesh.ranks().size(); ++place) {
    places.emplace(mesh.ranks()[place], static_cast<int64_t>(place));
  }
  const dcp::Mesh grid = mesh.to_dcp();
  std::vector<std::vector<int64_t>> coordinates;
  for (const int64_t rank : get_process_group_ranks(group)) {
    const dcp::Dims coordinate = grid.Coordinate(places.at(rank));
    coordinates.emplace_back(coordinate.begin(), coordinate.end());
  }
  return coordinates;
}

// `coordinates` has each rank's place on the parameter's mesh.
MatrixParameter ParameterOnRanks(
    const SteppedParameter& parameter,
    const std::vector<std::vector<int64_t>>& coordinates) {
  MatrixParameter result = {.shape = parameter.shape,
                            .rows_per_matrix = parameter.rows_per_matrix,
                            .boxes = {},
                            .copies = {}};
  if (!parameter.spec.has_value()) {
    result.boxes = {{dcp::WholeBox(parameter.shape)}};
    result.copies = {0};
  }
  for (const std::vector<int64_t>& coordinate : coordinates) {
    const DTensorSpec& spec = *parameter.spec;
    result.boxes.push_back(RankBoxes(spec.shape, spec.mesh,
                                     to_dcp(WithoutPartials(spec.placements)),
                                     coordinate));
    result.copies.push_back(CopyNumber(spec, coordinate));
  }
  return result;
}

std::vector<LocalBox> OwnBoxes(const SteppedParameter& parameter) {
  if (parameter.spec.has_value()) {
    return PlacedBoxes(parameter.spec->local_boxes());
  }
  const dcp::Box whole = dcp::WholeBox(parameter.shape);
  return {{.box = whole, .begin = whole.offsets}};
}

// Makes the plan, when `mesh` and `parameters` are set.
void Plan(const std::vector<SteppedParameter>& parameters,
          MeshMatrices& matrices) {
  std::vector<std::vector<int64_t>> coordinates;
  int64_t rank = 0;
  if (matrices.mesh.has_value()) {
    matrices.group = JoinedGroup(*matrices.mesh);
    coordinates = Coordinates(*matrices.mesh, matrices.group);
    rank = matrices.group->getRank();
  }
  std::vector<MatrixParameter> planned;
  for (const size_t i : matrices.parameters) {
    planned.push_back(ParameterOnRanks(parameters[i], coordinates));
    matrices.boxes.push_back(OwnBoxes(parameters[i]));
  }
  const size_t num_ranks = std::max<size_t>(coordinates.size(), 1);
  matrices.plan =
      MakeMatrixPlan(planned, static_cast<int64_t>(num_ranks), rank);
  matrices.finished.resize(planned.size());
  matrices.pieces.resize(planned.size());
  const std::vector<PlannedMatrix>& all = matrices.plan.matrices;
  for (size_t m = 0; m < all.size(); ++m) {
    if (!all[m].is_local || all[m].owner != rank) continue;
    matrices.finished[all[m].parameter].push_back(m);
  }
  for (size_t p = 0; p < matrices.plan.held.size(); ++p) {
    const PlannedMatrix& matrix = all[matrices.plan.held[p].matrix];
    matrices.pieces[matrix.parameter].push_back(p);
  }
}

}  // namespace

at::Tensor MeshMatrices::LocalPart(size_t index, const at::Tensor& local,
                                   const dcp::Box& box) const {
  const auto part = std::find_if(
      boxes[index].begin(), boxes[index].end(),
      [&box](const LocalBox& p) { return dcp::Contains(p.box, box); });
  at::Tensor matrix = local;
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    const int64_t begin = box.offsets[d] - part->box.offsets[d];
    matrix = matrix.narrow(static_cast<int64_t>(d), part->begin[d] + begin,
                           box.sizes[d]);
  }
  return matrix.dim() == 3 ? matrix.squeeze(0) : matrix;
}

std::vector<MeshMatrices> MakeMeshMatrices(
    const std::vector<SteppedParameter>& parameters) {
  std::vector<MeshMatrices> result;
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::optional<DeviceMesh> mesh;
    if (parameters[i].spec.has_value()) mesh = parameters[i].spec->mesh;
    if (mesh.has_value() && !mesh->get_coordinate().has_value()) continue;
    auto known = std::find_if(
        result.begin(), result.end(),
        [&mesh](const MeshMatrices& other) { return other.mesh == mesh; });
    if (known == result.end()) {
      known = result.insert(known, MeshMatrices());
      known->mesh = std::move(mesh);
    }
    known->parameters.push_back(i);
  }
  for (MeshMatrices& matrices : result) Plan(parameters, matrices);
  return result;
}

}  // namespace fsdp
