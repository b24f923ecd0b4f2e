// SPDX-License-Identifier: Apache-2.0

#include "fsdp/mesh/parallel_dims.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "c10/core/impl/DeviceGuardImplInterface.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {
namespace {

// Every axis, in TorchTitan's order.
const std::vector<std::string>& AllAxes() {
  static const auto* const axes = new std::vector<std::string>{
      "pp", "batch", "loss", "dp_replicate", "fsdp",
      "cp", "tp",    "ep",   "efsdp",        "etp"};
  return *axes;
}

std::string Listed(const std::vector<std::string>& axes) {
  return absl::StrJoin(axes, ", ");
}

std::string DeviceTypeOrDefault(const std::string& device_type) {
  if (!device_type.empty()) return device_type;
  const bool has_device =
      c10::impl::hasDeviceGuardImpl(c10::kCUDA) &&
      c10::impl::getDeviceGuardImpl(c10::kCUDA)->deviceCount() > 0;
  return has_device ? "cuda" : "cpu";
}

}  // namespace

ParallelDegrees ParallelDegrees::resolved(int64_t world_size) const {
  const std::vector<std::pair<const char*, int64_t>> at_least_one = {
      {"pp", pp}, {"dp_replicate", dp_replicate},
      {"cp", cp}, {"tp", tp},
      {"ep", ep}, {"etp", etp}};
  for (const auto& [name, degree] : at_least_one) {
    TORCH_CHECK_VALUE(degree >= 1, name, " is ", degree,
                      ", but must be at least 1");
  }
  TORCH_CHECK_VALUE(dp_shard == -1 || dp_shard >= 1, "dp_shard is ", dp_shard,
                    ", but must be at least 1, or -1 for what is left");
  ParallelDegrees result = *this;
  if (dp_shard == -1) {
    result.dp_shard = world_size / (dp_replicate * cp * tp * pp);
  }
  TORCH_CHECK_VALUE(dp_replicate * result.dp_shard * cp * tp * pp == world_size,
                    "pp(", pp, ") * dp_replicate(", dp_replicate,
                    ") * dp_shard(", result.dp_shard, ") * cp(", cp, ") * tp(",
                    tp, ") != number of ranks(", world_size, ")");
  TORCH_CHECK_VALUE(etp == tp || etp == 1, "etp is ", etp,
                    ", but must be 1 or tp(", tp, ")");
  TORCH_CHECK_VALUE(result.dp_shard * cp * tp % (ep * etp) == 0, "dp_shard(",
                    result.dp_shard, ") * cp(", cp, ") * tp(", tp,
                    ") is not divisible by ep(", ep, ") * etp(", etp, ")");
  return result;
}

int64_t ParallelDegrees::size(const std::string& axis) const {
  const int64_t fsdp = dp_shard * cp;
  const std::map<std::string, int64_t> sizes = {
      {"pp", pp},
      {"batch", dp_replicate * dp_shard},
      {"loss", dp_replicate * dp_shard * cp},
      {"dp_replicate", dp_replicate},
      {"fsdp", fsdp},
      {"cp", cp},
      {"tp", tp},
      {"ep", ep},
      {"efsdp", fsdp * tp / (ep * etp)},
      {"etp", etp}};
  const auto found = sizes.find(axis);
  TORCH_CHECK_VALUE(found != sizes.end(), "there is no axis \"", axis,
                    "\", only ", Listed(AllAxes()));
  return found->second;
}

bool ParallelDegrees::enabled(const std::string& axis) const {
  return axis == "efsdp" ? ep > 1 : size(axis) > 1;
}

int64_t ParallelDegrees::fsdp_gradient_divide_factor() const {
  return dp_replicate * dp_shard * cp;
}

int64_t ParallelDegrees::non_data_parallel_size() const { return cp * tp * pp; }

int64_t ParallelDegrees::seq_len_divisor() const { return tp * cp * 2; }

ParallelDims::ParallelDims(ParallelDegrees degrees, DeviceMesh world)
    : degrees_(degrees), world_(std::move(world)) {
  // In one order on every rank. A group is named after the first axis that has
  // the same ranks.
  const auto view = [&](const std::vector<std::string>& axes) {
    std::vector<int64_t> shape;
    for (const std::string& axis : axes) shape.push_back(degrees_.size(axis));
    return world_.unflatten(shape, axes);
  };
  views_.push_back(view({"pp", "dp_replicate", "fsdp", "tp"}));
  views_.push_back(view({"pp", "dp_replicate", "efsdp", "ep", "etp"}));
  views_.push_back(view({"pp", "batch", "cp", "tp"}));
  views_.push_back(views_[2][{"batch", "cp"}].flatten("loss"));
}

DeviceMesh ParallelDims::axis_mesh(const std::string& axis) const {
  for (const DeviceMesh& view : views_) {
    const std::vector<std::string>& names = view.mesh_dim_names();
    if (std::count(names.begin(), names.end(), axis) > 0) return view[axis];
  }
  TORCH_INTERNAL_ASSERT(false, "no view has the axis ", axis);
}

std::optional<DeviceMesh> ParallelDims::get_optional_mesh(
    const std::vector<std::string>& axes) const {
  TORCH_CHECK_VALUE(!axes.empty(), "a mesh needs an axis");
  bool all_enabled = true;
  for (const std::string& axis : axes) {
    all_enabled = degrees_.enabled(axis) && all_enabled;
  }
  if (!all_enabled) return std::nullopt;
  if (axes.size() == 1) return axis_mesh(axes[0]);
  for (const DeviceMesh& view : views_) {
    const std::vector<std::string>& names = view.mesh_dim_names();
    const bool has_all =
        std::all_of(axes.begin(), axes.end(), [&](const std::string& axis) {
          return std::count(names.begin(), names.end(), axis) > 0;
        });
    if (has_all) return view[axes];
  }
  TORCH_CHECK_VALUE(false, "the axes ", Listed(axes),
                    " do not belong to one view of the ranks");
}

std::optional<DeviceMesh> ParallelDims::get_optional_mesh(
    const std::string& axis) const {
  return get_optional_mesh(std::vector<std::string>{axis});
}

std::optional<DeviceMesh> ParallelDims::get_optional_mesh(
    std::initializer_list<std::string> axes) const {
  return get_optional_mesh(std::vector<std::string>(axes));
}

DeviceMesh ParallelDims::get_mesh(const std::vector<std::string>& axes) const {
  const std::optional<DeviceMesh> mesh = get_optional_mesh(axes);
  TORCH_CHECK_VALUE(mesh.has_value(), "there is no mesh of ", Listed(axes),
                    ", because not all of them have more than one rank");
  return *mesh;
}

DeviceMesh ParallelDims::get_mesh(const std::string& axis) const {
  return get_mesh(std::vector<std::string>{axis});
}

DeviceMesh ParallelDims::get_mesh(
    std::initializer_list<std::string> axes) const {
  return get_mesh(std::vector<std::string>(axes));
}

DeviceMesh ParallelDims::fsdp_mesh() const {
  const DeviceMesh& dense = views_.front();
  if (!degrees_.enabled("dp_replicate")) return dense["fsdp"];
  return dense[{"dp_replicate", "fsdp"}];
}

std::map<std::string, DeviceMesh> ParallelDims::get_all_one_dimensional_meshes()
    const {
  std::map<std::string, DeviceMesh> meshes;
  for (const std::string& axis : AllAxes()) {
    if (degrees_.size(axis) > 1) meshes.emplace(axis, axis_mesh(axis));
  }
  return meshes;
}

ParallelDims init_parallel_dims(const ParallelDegrees& degrees,
                                const std::string& device_type) {
  if (!is_initialized()) init_process_group();
  const ParallelDegrees resolved = degrees.resolved(get_world_size());
  return ParallelDims(resolved,
                      init_device_mesh(DeviceTypeOrDefault(device_type),
                                       {get_world_size()}, {"world"}));
}

}  // namespace fsdp
