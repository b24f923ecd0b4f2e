// SPDX-License-Identifier: Apache-2.0
// Joins shards on the cut dimension.
// Tested by tests/fsdp/extensions/nf4_test.cc.
#include "fsdp/extensions/join_shards.h"

#include <cstdint>
#include <vector>

#include "ATen/ops/tensor.h"

namespace fsdp {

at::Tensor SizesAsMetadata(const at::Tensor& shard) {
  return at::tensor(shard.sizes(), at::kLong);
}

void JoinShards(const at::Tensor& shards, const at::Tensor& shard_sizes,
                at::Tensor dst) {
  if (dst.numel() == 0) return;
  const int64_t* sizes = shard_sizes.const_data_ptr<int64_t>();
  std::vector<int64_t> by_rank = {-1};
  int64_t cut_dim = 0;
  for (int64_t d = 0; d < dst.dim(); ++d) {
    by_rank.push_back(sizes[d]);
    if (sizes[d] != dst.size(d)) cut_dim = d;
  }
  dst.copy_(shards.view(by_rank).movedim(0, cut_dim).reshape(dst.sizes()));
}

}  // namespace fsdp
