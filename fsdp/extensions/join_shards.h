// SPDX-License-Identifier: Apache-2.0
// The last step in an extension's post_all_gather: joins shards that are
// adjacent in memory into the parameter, whichever dimension was cut.
#ifndef FSDP_EXTENSIONS_JOIN_SHARDS_H_
#define FSDP_EXTENSIONS_JOIN_SHARDS_H_

#include "ATen/core/Tensor.h"

namespace fsdp {

// A shard's sizes as metadata that post_all_gather gets back: int64, 1-d.
at::Tensor SizesAsMetadata(const at::Tensor& shard);

// `shards` holds every rank's shard values, one after the other, each with
// `shard_sizes` (from SizesAsMetadata); `dst` has those sizes, except on the
// dimension that was cut, where it is as long as all shards together.
void JoinShards(const at::Tensor& shards, const at::Tensor& shard_sizes,
                at::Tensor dst);

}  // namespace fsdp

#endif  // FSDP_EXTENSIONS_JOIN_SHARDS_H_
