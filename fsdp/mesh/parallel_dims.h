// SPDX-License-Identifier: Apache-2.0
// ParallelDims: how many ranks each kind of parallelism has, and the meshes for
// it, as views of one world. Axis names and the order of ranks are those in
// TorchTitan 0.2.2 (torchtitan/distributed/parallel_dims.py):
//
//   dense        pp, dp_replicate, fsdp, tp         parameters outside experts
//   sparse       pp, dp_replicate, efsdp, ep, etp   the experts
//   dataloading  pp, batch, cp, tp                  which rank reads which data
//   loss         batch x cp                         a loss is averaged over it
//
// with batch = dp_replicate * dp_shard, fsdp = dp_shard * cp and efsdp = fsdp *
// tp / (ep * etp). So expert parallelism has no ranks of its own: it divides
// the fsdp ranks and, unless etp is tp, the tp ranks. For the thread that
// trains.
#ifndef FSDP_MESH_PARALLEL_DIMS_H_
#define FSDP_MESH_PARALLEL_DIMS_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/mesh/device_mesh.h"

namespace fsdp {

// How many ranks each kind has; a plain value.
struct ParallelDegrees {
  int64_t pp = 1;
  int64_t dp_replicate = 1;
  // -1: all that the others leave of the world.
  int64_t dp_shard = -1;
  int64_t cp = 1;
  int64_t tp = 1;
  int64_t ep = 1;
  // How many ranks cut each expert: 1, or as many as tp.
  int64_t etp = 1;

  // The same with dp_shard known, for a world with `world_size` ranks. Throws
  // c10::ValueError, which states the equation, when they do not fit.
  ParallelDegrees resolved(int64_t world_size) const;

  // After resolved(): how many ranks an axis named above has. Throws
  // c10::ValueError for another name.
  int64_t size(const std::string& axis) const;
  // Whether an axis has more than one rank. efsdp is enabled, even with one
  // rank, exactly when ep is: then experts are a separate fully_shard group.
  bool enabled(const std::string& axis) const;

  // A parameter's gradient holds the sum of this many means of a loss, on every
  // mesh.
  int64_t fsdp_gradient_divide_factor() const;
  int64_t non_data_parallel_size() const;
  // Sequence lengths must be multiples of it, for sequence parallelism and for
  // balanced context parallelism.
  int64_t seq_len_divisor() const;
};

class ParallelDims {
 public:
  const ParallelDegrees& degrees() const { return degrees_; }

  // The mesh with these axes, which must belong to one view and be in that
  // view's order; absent unless all are enabled. Throws c10::ValueError for a
  // name that does not exist, or for axes from different views.
  std::optional<DeviceMesh> get_optional_mesh(
      const std::vector<std::string>& axes) const;
  std::optional<DeviceMesh> get_optional_mesh(const std::string& axis) const;
  std::optional<DeviceMesh> get_optional_mesh(
      std::initializer_list<std::string> axes) const;
  // The same, but throws c10::ValueError when one is not enabled.
  DeviceMesh get_mesh(const std::vector<std::string>& axes) const;
  DeviceMesh get_mesh(const std::string& axis) const;
  DeviceMesh get_mesh(std::initializer_list<std::string> axes) const;

  // The mesh for fully_shard of everything but experts: dp_replicate, if it has
  // several ranks, and fsdp, which may have one.
  DeviceMesh fsdp_mesh() const;

  // Each axis with more than one rank, by name.
  std::map<std::string, DeviceMesh> get_all_one_dimensional_meshes() const;
  // All ranks, on the axis "world": the root of every other mesh.
  const DeviceMesh& world_mesh() const { return world_; }

 private:
  ParallelDims(ParallelDegrees degrees, DeviceMesh world);
  DeviceMesh axis_mesh(const std::string& axis) const;

  ParallelDegrees degrees_;
  DeviceMesh world_;
  // dense, sparse, dataloading, loss.
  std::vector<DeviceMesh> views_;

  friend ParallelDims init_parallel_dims(const ParallelDegrees& degrees,
                                         const std::string& device_type);
};

// Makes the meshes for all ranks, and a process group for each distinct set of
// ranks; initialises the default group if needed. Collective over all ranks.
// `device_type` is "cpu" or "cuda"; empty: cuda if this machine has a device.
ParallelDims init_parallel_dims(const ParallelDegrees& degrees,
                                const std::string& device_type = "");

}  // namespace fsdp

#endif  // FSDP_MESH_PARALLEL_DIMS_H_
