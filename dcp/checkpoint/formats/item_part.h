// SPDX-License-Identifier: Apache-2.0
// Narrows a location from the whole tensor in an item to one chunk in it
// (ItemPart). Pure; any thread.
#ifndef DCP_CHECKPOINT_FORMATS_ITEM_PART_H_
#define DCP_CHECKPOINT_FORMATS_ITEM_PART_H_

#include <cstdint>

#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/tensor/box.h"

namespace dcp {

// On entry, `location` is the whole tensor's, with part.shape; on return it is
// the chunk's, with `sizes`. The record stays, because the CRC-32 is the whole
// tensor's.
void NarrowToPart(const ItemPart& part, const Dims& sizes,
                  uint64_t element_bytes, ChunkLocation& location);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FORMATS_ITEM_PART_H_
