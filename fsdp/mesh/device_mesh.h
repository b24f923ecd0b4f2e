// SPDX-License-Identifier: Apache-2.0
// DeviceMesh: ranks in an n-dimensional grid with a process group for each
// axis; names and rules are PyTorch's (torch/distributed/device_mesh.py). A
// mesh is a cheap handle: copies share it, slices share the groups. For the
// thread that trains.
#ifndef FSDP_MESH_DEVICE_MESH_H_
#define FSDP_MESH_DEVICE_MESH_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "c10/core/DeviceType.h"
#include "dcp/tensor/placement.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

class DeviceMesh {
 public:
  // Wraps existing groups: one per axis. A single group needs neither ranks nor
  // names. Several groups need names, `shape`, and the whole mesh's `ranks` in
  // row-major order.
  static DeviceMesh from_group(const ProcessGroup& group,
                               c10::DeviceType device_type,
                               const std::string& mesh_dim_name = "");
  static DeviceMesh from_group(const std::vector<ProcessGroup>& groups,
                               c10::DeviceType device_type,
                               const std::vector<int64_t>& shape,
                               const std::vector<int64_t>& ranks,
                               const std::vector<std::string>& mesh_dim_names);

  c10::DeviceType device_type() const;
  // cpu, or the type's current device.
  c10::Device device() const;

  int64_t ndim() const;
  const std::vector<int64_t>& shape() const;
  int64_t size() const;  // how many ranks
  int64_t size(int64_t mesh_dim) const;
  // Empty when the mesh was made without names.
  const std::vector<std::string>& mesh_dim_names() const;
  // Row-major, as ranks in the default group.
  const std::vector<int64_t>& ranks() const;

  // The sub-mesh with these axes through this rank. Throws c10::Error for a
  // mesh without names, c10::IndexError for an unknown name, c10::ValueError
  // for names not in the mesh's order.
  DeviceMesh operator[](const std::string& mesh_dim_name) const;
  DeviceMesh operator[](const std::vector<std::string>& mesh_dim_names) const;
  // For mesh[{"dp", "tp"}], which would be ambiguous otherwise.
  DeviceMesh operator[](
      std::initializer_list<std::string> mesh_dim_names) const;

  // An axis's process group, through this rank. Without an argument, the mesh
  // must have one axis.
  ProcessGroup get_group() const;
  ProcessGroup get_group(int64_t mesh_dim) const;
  ProcessGroup get_group(const std::string& mesh_dim_name) const;
  std::vector<ProcessGroup> get_all_groups() const;

  // This rank in the default group.
  int64_t get_rank() const;
  // This rank's index on an axis.
  int64_t get_local_rank() const;
  int64_t get_local_rank(int64_t mesh_dim) const;
  int64_t get_local_rank(const std::string& mesh_dim_name) const;
  // Absent when this rank is outside the mesh.
  std::optional<std::vector<int64_t>> get_coordinate() const;

  // The axes joined into one, with a group for it, stored on the root under
  // `name` (default: the names joined with "_"). The first call is collective.
  // Throws c10::ValueError when an axis already has the name.
  DeviceMesh flatten(const std::string& name = "") const;

  // A one-axis mesh seen as a row-major grid: another view of the same root.
  // Axes with the same ranks as an axis in an earlier view share that axis's
  // group. Collective. Throws c10::ValueError unless `shape` has as many ranks
  // as the axis.
  DeviceMesh unflatten(const std::vector<int64_t>& shape,
                       const std::vector<std::string>& mesh_dim_names) const;

  // These axes followed by the axes in `other` (FSDP's axes before tensor
  // parallelism's). Both must be slices of one root, and must not overlap.
  DeviceMesh concatenate(const DeviceMesh& other) const;
  // The mesh that this is a slice of; a mesh that is not a slice returns
  // itself.
  DeviceMesh root() const;

  // The grid as dcp's geometry knows it; axes without names are "0", "1", ...
  dcp::Mesh to_dcp() const;

  // Equal ranks, layout, device type and names.
  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b);

 private:
  struct Impl;
  explicit DeviceMesh(std::shared_ptr<const Impl> impl);

  // Shared by this handle's copies and by the slices made from it.
  std::shared_ptr<const Impl> impl_;

  friend DeviceMesh init_device_mesh(c10::DeviceType device_type,
                                     const std::vector<int64_t>& mesh_shape,
                                     const std::vector<std::string>& names);
};

// Ranks 0..N-1 in the default group, in row-major order; initialises the
// default group if needed; collective. One process group per axis, made in one
// order on every rank; an axis that spans the world is the default group.
// Throws c10::ValueError when names are not unique or not as many as axes,
// c10::Error when the mesh does not have the world's size.
DeviceMesh init_device_mesh(
    c10::DeviceType device_type, const std::vector<int64_t>& mesh_shape,
    const std::vector<std::string>& mesh_dim_names = {});
// "cpu" or "cuda"; an index is refused.
DeviceMesh init_device_mesh(
    const std::string& device_type, const std::vector<int64_t>& mesh_shape,
    const std::vector<std::string>& mesh_dim_names = {});

std::string to_string(const DeviceMesh& mesh);

}  // namespace fsdp

#endif  // FSDP_MESH_DEVICE_MESH_H_
