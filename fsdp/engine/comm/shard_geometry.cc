// SPDX-License-Identifier: Apache-2.0
// Computes chunks and views of padded parts.
// Tested by tests/fsdp/fully_shard_test.cc.
#include "fsdp/engine/comm/shard_geometry.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace fsdp {

int64_t ShardGeometry::chunk() const {
  return (sizes[dim] + world - 1) / world;
}

int64_t ShardGeometry::local_begin() const {
  return std::min(sizes[dim], chunk() * rank);
}

int64_t ShardGeometry::local_size() const {
  return std::min(sizes[dim], local_begin() + chunk()) - local_begin();
}

std::vector<int64_t> ShardGeometry::local_sizes() const {
  std::vector<int64_t> local = sizes;
  local[dim] = local_size();
  return local;
}

std::vector<int64_t> ShardGeometry::padded_sizes() const {
  std::vector<int64_t> padded = sizes;
  padded[dim] = chunk();
  return padded;
}

int64_t ShardGeometry::padded_numel() const {
  const std::vector<int64_t> padded = padded_sizes();
  return std::accumulate(padded.begin(), padded.end(), int64_t{1},
                         std::multiplies<>());
}

at::Tensor ShardGeometry::WithoutPadding(const at::Tensor& padded) const {
  return padded.view(padded_sizes()).narrow(dim, 0, local_size());
}

at::Tensor ShardGeometry::CutFrom(const at::Tensor& whole) const {
  return whole.narrow(dim, local_begin(), local_size());
}

}  // namespace fsdp
