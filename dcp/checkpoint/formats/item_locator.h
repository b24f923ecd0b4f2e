// SPDX-License-Identifier: Apache-2.0
// Examines the items in a DCP checkpoint: where each chunk's payload is,
// whether the item agrees with the index, and the objects' values. Reads every
// item's head and tail, in file order and at full queue depth, but not the
// payload, except for small items, which are read whole. If there are many
// items and enough memory, two threads share them.
#ifndef DCP_CHECKPOINT_FORMATS_ITEM_LOCATOR_H_
#define DCP_CHECKPOINT_FORMATS_ITEM_LOCATOR_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/checkpoint/formats/item_order.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/io/file_system.h"

namespace dcp {

// An item that is being located, for a visitor that checks the bytes.
struct VisitedItem {
  // At least one; several only if their entries have parts (ItemPart). They
  // have the same storage.
  absl::Span<const ItemChunk> chunks;
  const TorchArchive* archive = nullptr;
  // The item's bytes [offset, offset + length), if they are already in memory,
  // as all bytes in a small item are. Empty if they would have to be read.
  absl::FunctionRef<ByteSpan(uint64_t offset, uint64_t length)> bytes;
};

// Called for each item that is a torch.save archive, even if it is otherwise
// invalid; several threads call it at once.
using ItemVisitor = std::function<void(const VisitedItem& item)>;

// All chunks in the entries.
std::vector<EntryChunk> ChunksInEntries(const CheckpointParts& parts,
                                        absl::Span<const uint32_t> entries);

// Fills in the missing locations and values for the given chunks in `parts`,
// with blocks of at most `memory_bytes`, which must be at least
// kMinMemoryBytes. DataLoss names the entry and the file. `progress` and
// `visitor` may be null.
absl::Status LocateItems(FileSystem& fs, CheckpointParts& parts,
                         absl::Span<const EntryChunk> wanted,
                         uint64_t memory_bytes, std::stop_token stop,
                         OpenProgress* progress,
                         const ItemVisitor& visitor = nullptr);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FORMATS_ITEM_LOCATOR_H_
