// Examines the items of a DCP checkpoint: where the payload of each chunk is,
// whether the item is what the index says, and the values of objects. Reads
// head and tail of every item, in file order and at full queue depth, but not
// the payload, except for small items, which are read whole. If there are many
// items, and memory for it, two threads share them.
#ifndef DCP_CHECKPOINT_OPEN_ITEM_LOCATOR_H_
#define DCP_CHECKPOINT_OPEN_ITEM_LOCATOR_H_

#include <cstdint>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Fills in the missing locations and values of the given entries of `parts`,
// with blocks of at most `memory_bytes`, which must be at least
// kMinMemoryBytes. DataLoss names the entry and the file. `progress` and
// `visitor` may be null.
absl::Status LocateItems(FileSystem& fs, CheckpointParts& parts,
                         absl::Span<const uint32_t> entries,
                         uint64_t memory_bytes, std::stop_token stop,
                         OpenProgress* progress,
                         const ItemVisitor& visitor = nullptr);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_ITEM_LOCATOR_H_
