// SPDX-License-Identifier: Apache-2.0
// DTensor: a tensor that lies on a mesh. It is a value type: this rank's local
// tensor, and the spec (mesh, placements, global shape), which says which part
// of the whole it is. It has no operator overloads: computations use the shards
// as plain tensors, and everything that needs the other ranks is a function
// here. All ranks in the mesh must make the calls marked collective. Semantics:
// torch/distributed/tensor/_api.py.
#ifndef FSDP_MESH_DTENSOR_H_
#define FSDP_MESH_DTENSOR_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor_spec.h"
#include "fsdp/mesh/placement.h"

namespace fsdp {

class DTensor {
 public:
  // `local` must have the shape that `spec` gives this rank; it is aliased.
  // Throws c10::ValueError otherwise.
  DTensor(at::Tensor local, DTensorSpec spec);

  // Infers the whole tensor from even local shards; give both shape and stride
  // when shards are uneven. With `run_check` the ranks compare shapes, and
  // replicas take the values of the first replica's rank: collective.
  static DTensor from_local(const at::Tensor& local, const DeviceMesh& mesh,
                            const Placements& placements,
                            bool run_check = false,
                            std::optional<std::vector<int64_t>> shape = {},
                            std::optional<std::vector<int64_t>> stride = {});

  // Aliases the shard that the optimizer sees.
  const at::Tensor& to_local() const { return local_; }
  // The whole tensor, on every rank. Collective.
  at::Tensor full_tensor() const;
  // The same value with other placements on the same mesh. Collective. Partial
  // as a target is refused (c10::Error), as in PyTorch.
  DTensor redistribute(const Placements& placements) const;

  const DTensorSpec& spec() const { return spec_; }
  const DeviceMesh& device_mesh() const { return spec_.mesh; }
  const Placements& placements() const { return spec_.placements; }
  const std::vector<int64_t>& shape() const { return spec_.shape; }
  int64_t dim() const { return static_cast<int64_t>(spec_.shape.size()); }
  int64_t numel() const;
  at::ScalarType scalar_type() const { return local_.scalar_type(); }

  // The local tensor's gradient with this spec; absent when undefined.
  std::optional<DTensor> grad() const;

  // The whole tensor's p-norm (p > 0 or infinity), as a tensor without
  // dimensions, equal on every rank. Collective: one reduction per axis that
  // shards.
  at::Tensor norm(double p = 2.0) const;

  // The same spec around another local tensor with the same shape.
  DTensor with_local(at::Tensor local) const;

 private:
  at::Tensor local_;
  DTensorSpec spec_;
};

// This rank's part of the `tensor` on rank 0 of every axis (collective), or,
// with `src_data_rank` absent, of this rank's own `tensor` (no communication).
// Default placements: Replicate on every axis.
DTensor distribute_tensor(const at::Tensor& tensor, const DeviceMesh& mesh,
                          const Placements& placements = {},
                          std::optional<int64_t> src_data_rank = 0);

// "DTensor(local_tensor=[2, 3] float32 cpu, device_mesh=..., placements=...)";
// shape and type, never values, which would be long.
std::string to_string(const DTensor& tensor);
std::ostream& operator<<(std::ostream& os, const DTensor& tensor);

}  // namespace fsdp

#endif  // FSDP_MESH_DTENSOR_H_
