// Looks into the items of a DCP checkpoint: where the payload of each chunk
// lies and whether the item is what the index says; the values of objects.
// Head and tail of every item are read, in file order and at full queue
// depth; the payload is not, but of small items, which are read whole. Where
// there are many, and memory for both, two threads share them.
#ifndef DCP_CHECKPOINT_ITEM_LOCATOR_H_
#define DCP_CHECKPOINT_ITEM_LOCATOR_H_

#include <cstdint>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/checkpoint.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Fills in the locations and values of the given entries of `parts` that lack
// them, with blocks of at most `memory_bytes`, which is kMinMemoryBytes at
// least. DataLoss names the entry and the file. `progress` and `visitor` may be
// null.
absl::Status LocateItems(FileSystem& fs, CheckpointParts& parts,
                         absl::Span<const uint32_t> entries,
                         uint64_t memory_bytes, std::stop_token stop,
                         OpenProgress* progress,
                         const ItemVisitor& visitor = nullptr);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_ITEM_LOCATOR_H_
