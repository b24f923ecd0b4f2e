// SPDX-License-Identifier: Apache-2.0
// The order in which a checkpoint's items are read to locate their payload.
// Pure; called by item_locator alone.
#ifndef DCP_CHECKPOINT_FORMATS_ITEM_ORDER_H_
#define DCP_CHECKPOINT_FORMATS_ITEM_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// The entry that an item holds, or one chunk of it.
struct ItemChunk {
  uint32_t entry = 0;  // index in the checkpoint
  uint32_t chunk = 0;  // for a tensor
  StorageInfo storage;
};

// The chunks in `wanted` that are not located yet, in file order.
std::vector<ItemChunk> ChunksToLocate(const CheckpointParts& parts,
                                      absl::Span<const EntryChunk> wanted);

// Items that are read once each: runs of `chunks`, as each run's first index,
// then the total count.
std::vector<size_t> ItemStarts(const CheckpointParts& parts,
                               absl::Span<const ItemChunk> chunks);

// For each file, where the bytes entries end according to the index.
std::vector<uint64_t> ObjectEnds(const CheckpointParts& parts);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FORMATS_ITEM_ORDER_H_
