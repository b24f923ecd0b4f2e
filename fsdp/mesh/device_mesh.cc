// SPDX-License-Identifier: Apache-2.0
// A mesh is a root, the grid that was made first, and some axes of it
// (mesh_axis.h). Slices, views, flattened axes and joined ones are all lists of
// axes. On every axis that is not in the list, the mesh lies at this rank's
// place.
#include "fsdp/mesh/device_mesh.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/core/Device.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/mesh_axis.h"

namespace fsdp {
namespace {

int64_t Product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1},
                         [](int64_t a, int64_t b) { return a * b; });
}

void CheckShapeAndNames(const std::vector<int64_t>& shape,
                        const std::vector<std::string>& names) {
  TORCH_CHECK_VALUE(!shape.empty(), "a mesh needs an axis");
  for (const int64_t size : shape) {
    TORCH_CHECK_VALUE(size >= 1, "mesh shape (", absl::StrJoin(shape, ", "),
                      ") has an axis without ranks");
  }
  if (names.empty()) return;
  TORCH_CHECK_VALUE(names.size() == shape.size(), "a mesh of ", shape.size(),
                    " axes has ", names.size(), " names (",
                    absl::StrJoin(names, ", "),
                    "); give each axis one, or none at all");
  std::set<std::string> seen;
  for (const std::string& name : names) {
    TORCH_CHECK_VALUE(!name.empty(), "an axis has an empty name");
    TORCH_CHECK_VALUE(seen.insert(name).second, "axis name \"", name,
                      "\" is not unique");
  }
}

}  // namespace

struct DeviceMesh::Impl {
  struct Root {
    c10::DeviceType device_type;
    std::vector<int64_t> ranks;
    std::vector<MeshAxis> axes;
    // This rank's place in `ranks`; absent outside the mesh.
    std::optional<int64_t> place;
    // By name; grows when any mesh with this root is flattened.
    mutable std::map<std::string, MeshAxis> flattened;
    // By an axis's canonical extents, so that axes with the same ranks share
    // one group. Grows with views and flattened axes.
    mutable std::map<std::vector<MeshExtent>, ProcessGroup> groups;
  };

  // Shared by all meshes that are made from it.
  std::shared_ptr<const Root> root;
  std::vector<MeshAxis> axes;
  // Derived from the members above.
  std::vector<int64_t> shape;
  std::vector<std::string> names;
  std::vector<int64_t> ranks;

  static DeviceMesh Make(std::shared_ptr<const Root> root,
                         std::vector<MeshAxis> axes);
  static DeviceMesh MakeRoot(c10::DeviceType device_type,
                             std::vector<int64_t> ranks,
                             std::vector<MeshAxis> axes);
  static ProcessGroup AxisGroup(const Root& root, const MeshAxis& axis);

  size_t AxisIndex(int64_t mesh_dim) const;
  size_t AxisIndex(const std::string& name) const;
  size_t OnlyAxis(const char* what) const;
};

DeviceMesh DeviceMesh::Impl::Make(std::shared_ptr<const Root> root,
                                  std::vector<MeshAxis> axes) {
  auto impl = std::make_shared<Impl>();
  for (const MeshAxis& axis : axes) {
    impl->shape.push_back(AxisSize(axis));
    if (!axis.name.empty()) impl->names.push_back(axis.name);
  }
  for (const int64_t place : SpannedPlaces(axes, root->place.value_or(0))) {
    impl->ranks.push_back(root->ranks[place]);
  }
  impl->root = std::move(root);
  impl->axes = std::move(axes);
  return DeviceMesh(std::move(impl));
}

DeviceMesh DeviceMesh::Impl::MakeRoot(c10::DeviceType device_type,
                                      std::vector<int64_t> ranks,
                                      std::vector<MeshAxis> axes) {
  auto root = std::make_shared<Root>();
  root->device_type = device_type;
  const auto self = std::find(ranks.begin(), ranks.end(), fsdp::get_rank());
  if (self != ranks.end()) root->place = self - ranks.begin();
  root->ranks = std::move(ranks);
  root->axes = axes;
  for (const MeshAxis& axis : axes) {
    root->groups.emplace(Canonical(axis), axis.group);
  }
  return Make(std::move(root), std::move(axes));
}

// The first call for an axis with these places is collective over the world: it
// makes the groups for all parallels to `axis`. Each begins at a place with
// index 0 on the axis.
ProcessGroup DeviceMesh::Impl::AxisGroup(const Root& root,
                                         const MeshAxis& axis) {
  const std::vector<MeshExtent> extents = Canonical(axis);
  const auto found = root.groups.find(extents);
  if (found != root.groups.end()) return found->second;
  if (AxisSize(axis) == get_world_size()) return world_group();
  std::vector<std::vector<int64_t>> groups;
  for (size_t place = 0; place < root.ranks.size(); ++place) {
    const int64_t first = static_cast<int64_t>(place);
    if (CoordinateOn(axis, first) != 0) continue;
    std::vector<int64_t>& members = groups.emplace_back();
    for (const int64_t offset : AxisOffsets(axis)) {
      members.push_back(root.ranks[first + offset]);
    }
  }
  ProcessGroup group =
      new_subgroups(groups, axis.name.empty() ? "mesh" : axis.name);
  root.groups.emplace(extents, group);
  return group;
}

size_t DeviceMesh::Impl::AxisIndex(int64_t mesh_dim) const {
  TORCH_CHECK_INDEX(0 <= mesh_dim && mesh_dim < std::ssize(axes), "axis ",
                    mesh_dim, " is out of range for a mesh of ", axes.size(),
                    " axes");
  return static_cast<size_t>(mesh_dim);
}

size_t DeviceMesh::Impl::AxisIndex(const std::string& name) const {
  TORCH_CHECK(
      !names.empty(), "axis \"", name,
      "\" cannot be found, because the axes of this mesh have no names; give "
      "them to init_device_mesh");
  const auto found = std::find(names.begin(), names.end(), name);
  TORCH_CHECK_INDEX(found != names.end(), "the mesh has no axis \"", name,
                    "\", only ", absl::StrJoin(names, ", "));
  return static_cast<size_t>(found - names.begin());
}

size_t DeviceMesh::Impl::OnlyAxis(const char* what) const {
  TORCH_CHECK(axes.size() == 1, what, " of a mesh of ", axes.size(),
              " axes: name the axis");
  return 0;
}

DeviceMesh::DeviceMesh(std::shared_ptr<const Impl> impl)
    : impl_(std::move(impl)) {}

DeviceMesh DeviceMesh::from_group(const ProcessGroup& group,
                                  c10::DeviceType device_type,
                                  const std::string& mesh_dim_name) {
  std::vector<int64_t> ranks = get_process_group_ranks(group);
  std::vector<MeshAxis> axes = GridAxes({std::ssize(ranks)}, {});
  axes[0].name = mesh_dim_name;
  axes[0].group = group;
  return Impl::MakeRoot(device_type, std::move(ranks), std::move(axes));
}

DeviceMesh DeviceMesh::from_group(
    const std::vector<ProcessGroup>& groups, c10::DeviceType device_type,
    const std::vector<int64_t>& shape, const std::vector<int64_t>& ranks,
    const std::vector<std::string>& mesh_dim_names) {
  CheckShapeAndNames(shape, mesh_dim_names);
  TORCH_CHECK_VALUE(groups.size() == 1 || !mesh_dim_names.empty(),
                    "a mesh of several groups needs names for its axes");
  TORCH_CHECK_VALUE(groups.size() == shape.size(), "a mesh of ", shape.size(),
                    " axes needs as many groups, not ", groups.size());
  TORCH_CHECK_VALUE(Product(shape) == std::ssize(ranks), "a mesh of shape (",
                    absl::StrJoin(shape, ", "), ") cannot have ", ranks.size(),
                    " ranks");
  const std::set<int64_t> distinct(ranks.begin(), ranks.end());
  TORCH_CHECK_VALUE(
      distinct.size() == ranks.size(),
      "a rank is in the mesh twice: ", absl::StrJoin(ranks, ", "));
  std::vector<MeshAxis> axes = GridAxes(shape, mesh_dim_names);
  const auto self = std::find(ranks.begin(), ranks.end(), fsdp::get_rank());
  for (size_t i = 0; i < groups.size() && self != ranks.end(); ++i) {
    std::vector<int64_t> expected;
    for (const int64_t place : SpannedPlaces({axes[i]}, self - ranks.begin())) {
      expected.push_back(ranks[place]);
    }
    const std::vector<int64_t> actual = get_process_group_ranks(groups[i]);
    TORCH_CHECK_VALUE(expected == actual, "axis \"", axes[i].name,
                      "\" has ranks ", absl::StrJoin(expected, ", "),
                      " through rank ", *self, ", but its group has ",
                      absl::StrJoin(actual, ", "));
    axes[i].group = groups[i];
  }
  return Impl::MakeRoot(device_type, ranks, std::move(axes));
}

c10::DeviceType DeviceMesh::device_type() const {
  return impl_->root->device_type;
}

c10::Device DeviceMesh::device() const {
  if (device_type() == c10::DeviceType::CPU) return c10::DeviceType::CPU;
  return c10::impl::VirtualGuardImpl(device_type()).getDevice();
}

int64_t DeviceMesh::ndim() const { return std::ssize(impl_->shape); }

const std::vector<int64_t>& DeviceMesh::shape() const { return impl_->shape; }

int64_t DeviceMesh::size() const { return std::ssize(impl_->ranks); }

int64_t DeviceMesh::size(int64_t mesh_dim) const {
  return impl_->shape[impl_->AxisIndex(mesh_dim)];
}

const std::vector<std::string>& DeviceMesh::mesh_dim_names() const {
  return impl_->names;
}

const std::vector<int64_t>& DeviceMesh::ranks() const { return impl_->ranks; }

DeviceMesh DeviceMesh::operator[](const std::string& mesh_dim_name) const {
  return (*this)[std::vector<std::string>{mesh_dim_name}];
}

DeviceMesh DeviceMesh::operator[](
    const std::vector<std::string>& mesh_dim_names) const {
  TORCH_CHECK_VALUE(!mesh_dim_names.empty(), "a slice needs an axis");
  const std::map<std::string, MeshAxis>& flattened = impl_->root->flattened;
  const auto flat = flattened.find(mesh_dim_names[0]);
  if (mesh_dim_names.size() == 1 && flat != flattened.end() &&
      *this == root()) {
    return Impl::Make(impl_->root, {flat->second});
  }
  std::vector<MeshAxis> axes;
  std::optional<size_t> previous;
  for (const std::string& name : mesh_dim_names) {
    const size_t index = impl_->AxisIndex(name);
    TORCH_CHECK_VALUE(!previous.has_value() || *previous < index, "slice (",
                      absl::StrJoin(mesh_dim_names, ", "),
                      ") is not in the order of the mesh's axes (",
                      absl::StrJoin(impl_->names, ", "), ")");
    previous = index;
    axes.push_back(impl_->axes[index]);
  }
  return Impl::Make(impl_->root, std::move(axes));
}

DeviceMesh DeviceMesh::operator[](
    std::initializer_list<std::string> mesh_dim_names) const {
  return (*this)[std::vector<std::string>(mesh_dim_names)];
}

ProcessGroup DeviceMesh::get_group() const {
  return impl_->axes[impl_->OnlyAxis("get_group")].group;
}

ProcessGroup DeviceMesh::get_group(int64_t mesh_dim) const {
  return impl_->axes[impl_->AxisIndex(mesh_dim)].group;
}

ProcessGroup DeviceMesh::get_group(const std::string& mesh_dim_name) const {
  return impl_->axes[impl_->AxisIndex(mesh_dim_name)].group;
}

std::vector<ProcessGroup> DeviceMesh::get_all_groups() const {
  std::vector<ProcessGroup> groups;
  for (const MeshAxis& axis : impl_->axes) groups.push_back(axis.group);
  return groups;
}

int64_t DeviceMesh::get_rank() const { return fsdp::get_rank(); }

int64_t DeviceMesh::get_local_rank() const {
  return get_local_rank(
      static_cast<int64_t>(impl_->OnlyAxis("get_local_rank")));
}

int64_t DeviceMesh::get_local_rank(int64_t mesh_dim) const {
  const size_t index = impl_->AxisIndex(mesh_dim);
  const std::optional<std::vector<int64_t>> coordinate = get_coordinate();
  TORCH_CHECK(coordinate.has_value(), "rank ", get_rank(), " is outside of ",
              to_string(*this));
  return (*coordinate)[index];
}

int64_t DeviceMesh::get_local_rank(const std::string& mesh_dim_name) const {
  return get_local_rank(static_cast<int64_t>(impl_->AxisIndex(mesh_dim_name)));
}

std::optional<std::vector<int64_t>> DeviceMesh::get_coordinate() const {
  if (!impl_->root->place.has_value()) return std::nullopt;
  std::vector<int64_t> coordinate;
  for (const MeshAxis& axis : impl_->axes) {
    coordinate.push_back(CoordinateOn(axis, *impl_->root->place));
  }
  return coordinate;
}

DeviceMesh DeviceMesh::flatten(const std::string& name) const {
  const Impl::Root& root = *impl_->root;
  MeshAxis axis;
  axis.name = name.empty() ? absl::StrJoin(impl_->names, "_") : name;
  TORCH_CHECK(!axis.name.empty(),
              "flatten: the axes of this mesh have no names, so give the "
              "result a name");
  for (const MeshAxis& part : impl_->axes) {
    axis.extents.insert(axis.extents.end(), part.extents.begin(),
                        part.extents.end());
  }
  if (ndim() == 1 && impl_->axes[0].name == axis.name) return *this;
  for (const MeshAxis& other : root.axes) {
    TORCH_CHECK_VALUE(other.name != axis.name, "flatten: \"", axis.name,
                      "\" is an axis of ", to_string(this->root()),
                      "; choose another name");
  }
  const auto found = root.flattened.find(axis.name);
  if (found != root.flattened.end()) {
    TORCH_CHECK_VALUE(found->second.extents == axis.extents, "flatten: \"",
                      axis.name,
                      "\" stands for other axes already; choose another name");
    return Impl::Make(impl_->root, {found->second});
  }
  axis.group = Impl::AxisGroup(root, axis);
  root.flattened.emplace(axis.name, axis);
  return Impl::Make(impl_->root, {std::move(axis)});
}

DeviceMesh DeviceMesh::unflatten(const std::vector<int64_t>& shape,
                                 const std::vector<std::string>& names) const {
  CheckShapeAndNames(shape, names);
  const std::vector<MeshExtent> whole =
      Canonical(impl_->axes[impl_->OnlyAxis("unflatten")]);
  TORCH_CHECK_VALUE(Product(shape) == size(), "unflatten: a shape of (",
                    absl::StrJoin(shape, ", "), ") has ", Product(shape),
                    " ranks, but ", to_string(*this), " has ", size());
  TORCH_CHECK_VALUE(whole.size() <= 1, "unflatten: the ranks of ",
                    to_string(*this), " are not equally far apart");
  std::vector<MeshAxis> axes =
      GridAxes(shape, names, whole.empty() ? 1 : whole[0].stride);
  for (MeshAxis& axis : axes) axis.group = Impl::AxisGroup(*impl_->root, axis);
  return Impl::Make(impl_->root, std::move(axes));
}

DeviceMesh DeviceMesh::concatenate(const DeviceMesh& other) const {
  TORCH_CHECK_VALUE(impl_->root == other.impl_->root,
                    "concatenate: ", to_string(*this), " and ",
                    to_string(other), " are not slices of one mesh");
  std::vector<MeshAxis> axes = impl_->axes;
  for (const MeshAxis& axis : other.impl_->axes) {
    for (const MeshAxis& own : impl_->axes) {
      TORCH_CHECK_VALUE(!Overlap(own, axis), "concatenate: ", to_string(*this),
                        " and ", to_string(other), " overlap");
      TORCH_CHECK_VALUE(own.name != axis.name || own.name.empty(),
                        "concatenate: both have an axis \"", own.name, "\"");
    }
    axes.push_back(axis);
  }
  return Impl::Make(impl_->root, std::move(axes));
}

DeviceMesh DeviceMesh::root() const {
  return Impl::Make(impl_->root, impl_->root->axes);
}

dcp::Mesh DeviceMesh::to_dcp() const {
  dcp::Mesh mesh;
  for (size_t i = 0; i < impl_->axes.size(); ++i) {
    const std::string& name = impl_->axes[i].name;
    mesh.axes.push_back({.name = name.empty() ? absl::StrCat(i) : name,
                         .size = impl_->shape[i]});
  }
  return mesh;
}

bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
  return a.impl_ == b.impl_ ||
         (a.device_type() == b.device_type() && a.ranks() == b.ranks() &&
          a.shape() == b.shape() && a.mesh_dim_names() == b.mesh_dim_names());
}

DeviceMesh init_device_mesh(c10::DeviceType device_type,
                            const std::vector<int64_t>& mesh_shape,
                            const std::vector<std::string>& names) {
  CheckShapeAndNames(mesh_shape, names);
  if (!is_initialized()) init_process_group();
  TORCH_CHECK(Product(mesh_shape) == get_world_size(), "a mesh of shape (",
              absl::StrJoin(mesh_shape, ", "), ") has ", Product(mesh_shape),
              " ranks, but the world has ", get_world_size());
  DeviceMesh::Impl::Root root;
  root.ranks.resize(static_cast<size_t>(get_world_size()));
  std::iota(root.ranks.begin(), root.ranks.end(), 0);
  std::vector<MeshAxis> axes = GridAxes(mesh_shape, names);
  for (MeshAxis& axis : axes) {
    axis.group = DeviceMesh::Impl::AxisGroup(root, axis);
  }
  return DeviceMesh::Impl::MakeRoot(device_type, std::move(root.ranks),
                                    std::move(axes));
}

DeviceMesh init_device_mesh(const std::string& device_type,
                            const std::vector<int64_t>& mesh_shape,
                            const std::vector<std::string>& names) {
  TORCH_CHECK_VALUE(device_type == "cpu" || device_type == "cuda",
                    "device type \"", device_type,
                    "\" of a mesh is not cpu or cuda; each process chooses "
                    "the index of its own device");
  return init_device_mesh(
      device_type == "cpu" ? c10::DeviceType::CPU : c10::DeviceType::CUDA,
      mesh_shape, names);
}

std::string to_string(const DeviceMesh& mesh) {
  std::vector<std::string> axes;
  for (int64_t i = 0; i < mesh.ndim(); ++i) {
    const std::string name =
        mesh.mesh_dim_names().empty()
            ? ""
            : absl::StrCat(mesh.mesh_dim_names()[static_cast<size_t>(i)], "=");
    axes.push_back(absl::StrCat(name, mesh.size(i)));
  }
  return absl::StrCat(
      "DeviceMesh((", absl::StrJoin(axes, ", "), axes.size() == 1 ? ",)" : ")",
      ", '", c10::DeviceTypeName(mesh.device_type(), /*lower_case=*/true),
      "')");
}

}  // namespace fsdp
