// SPDX-License-Identifier: Apache-2.0
// Narrows the location of the tensor in an item to one chunk in it (ItemPart).
// Pure; any thread.
#ifndef DCP_CHECKPOINT_FORMATS_ITEM_PART_H_
#define DCP_CHECKPOINT_FORMATS_ITEM_PART_H_

#include <cstdint>

#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/tensor/box.h"

namespace dcp {

// `location` is that of the whole tensor of part.shape, and becomes that of the
// chunk, which has `sizes`. The record stays, because its CRC-32 is that of the
// whole tensor.
void NarrowToPart(const ItemPart& part, const Dims& sizes,
                  uint64_t element_bytes, ChunkLocation& location);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FORMATS_ITEM_PART_H_
