// SPDX-License-Identifier: Apache-2.0
// Keeps the interned axes, and which fully_shard groups cover them.
//
// Tested by tests/fsdp/parallel/spmd/sharded_test.cc.
#include "fsdp/parallel/spmd/axis.h"

#include <vector>

#include "c10/util/Exception.h"

namespace fsdp::spmd {
namespace {

// The farther apart an axis's ranks are, the more slowly it varies in a
// row-major grid. This orders the axes of all views with one root.
int64_t AxisLevel(const DeviceMesh& mesh) {
  return mesh.size() == 1 ? 0 : mesh.ranks()[0] - mesh.ranks()[1];
}

}  // namespace

bool IsAveragedBy(const ProcessGroup& group, Axis& axis) {
  for (const auto& [known, averages] : axis.averaged_by) {
    if (known == group) return averages;
  }
  const std::vector<int64_t> members = get_process_group_ranks(group);
  const std::vector<int64_t> ranks = get_process_group_ranks(axis.group);
  const bool averages =
      axis.size > 1 &&
      std::all_of(ranks.begin(), ranks.end(), [&](int64_t rank) {
        return std::find(members.begin(), members.end(), rank) != members.end();
      });
  axis.averaged_by.emplace_back(group, averages);
  return averages;
}

AxisPtr InternAxis(const DeviceMesh& mesh) {
  TORCH_CHECK_VALUE(mesh.ndim() == 1, "a mesh of one axis is required, but ",
                    to_string(mesh), " has ", mesh.ndim(),
                    "; slice it, as in mesh[\"tp\"]");
  TORCH_CHECK_VALUE(mesh.get_coordinate().has_value(), "this rank is not in ",
                    to_string(mesh));
  static auto* axes = new std::vector<std::weak_ptr<Axis>>;
  const ProcessGroup group = mesh.get_group();
  std::erase_if(*axes, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : *axes) {
    const AxisPtr axis = weak.lock();
    if (axis->group == group) return axis;
  }
  AxisPtr axis = std::make_shared<Axis>(Axis{.mesh = mesh,
                                             .group = group,
                                             .size = mesh.size(),
                                             .rank = mesh.get_local_rank(),
                                             .level = AxisLevel(mesh)});
  axes->push_back(axis);
  return axis;
}

}  // namespace fsdp::spmd
