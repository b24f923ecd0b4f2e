// SPDX-License-Identifier: Apache-2.0
// ShardGeometry: how one tensor is cut among a group's ranks, and which part
// this rank has. Pure values and views; any thread.
#ifndef FSDP_ENGINE_COMM_SHARD_GEOMETRY_H_
#define FSDP_ENGINE_COMM_SHARD_GEOMETRY_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"

namespace fsdp {

// How a tensor is cut among `world` ranks along `dim`: as torch.chunk does,
// with every rank's part padded to the first one's size. In elements.
struct ShardGeometry {
  std::vector<int64_t> sizes;  // the whole tensor's
  int64_t dim = 0;
  int64_t world = 1;
  int64_t rank = 0;

  int64_t chunk() const;        // padded size along `dim`
  int64_t local_begin() const;  // this rank's part of `dim`
  int64_t local_size() const;   // not padded; may be 0
  std::vector<int64_t> local_sizes() const;
  std::vector<int64_t> padded_sizes() const;
  int64_t padded_numel() const;  // one rank's
  int64_t gathered_numel() const { return world * padded_numel(); }

  // This rank's part without padding: a view of `padded`, which has
  // padded_numel() elements.
  at::Tensor WithoutPadding(const at::Tensor& padded) const;
  // This rank's part: a view of `whole`, which has `sizes`.
  at::Tensor CutFrom(const at::Tensor& whole) const;
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_COMM_SHARD_GEOMETRY_H_
