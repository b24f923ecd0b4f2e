// SPDX-License-Identifier: Apache-2.0
// The last step of an extension's post_all_gather: joins shards that are
// adjacent in memory to the parameter, whichever dimension they were cut on.
#ifndef FSDP_EXTENSIONS_JOIN_SHARDS_H_
#define FSDP_EXTENSIONS_JOIN_SHARDS_H_

#include "ATen/core/Tensor.h"

namespace fsdp {

// The sizes of a shard as metadata that post_all_gather gets back: int64, 1-d.
at::Tensor SizesAsMetadata(const at::Tensor& shard);

// `shards` holds the values of every rank's shard, one after the other, each of
// `shard_sizes` (from SizesAsMetadata); `dst` has those sizes, except on the
// dimension that was cut, where it is as long as all shards together.
void JoinShards(const at::Tensor& shards, const at::Tensor& shard_sizes,
                at::Tensor dst);

}  // namespace fsdp

#endif  // FSDP_EXTENSIONS_JOIN_SHARDS_H_
