// SPDX-License-Identifier: Apache-2.0
// Sorts chunks by their place in the files.
// Tested by tests/dcp/checkpoint/formats/item_locator_test.cc
#include "dcp/checkpoint/formats/item_order.h"

#include <algorithm>
#include <utility>

#include "dcp/checkpoint/files/checkpoint_entry.h"

namespace dcp {

std::vector<ItemChunk> ChunksToLocate(const CheckpointParts& parts,
                                      absl::Span<const EntryChunk> wanted) {
  std::vector<ItemChunk> chunks;
  for (const auto& [i, c] : wanted) {
    const CheckpointEntry& entry = parts.entries[i];
    if (const ObjectEntry* object = entry.object()) {
      if (!object->located) chunks.push_back({i, 0, object->item});
      continue;
    }
    const ChunkLocation& location = entry.tensor()->locations[c];
    if (!location.located) chunks.push_back({i, c, location.item});
  }
  const auto is_before = [](const ItemChunk& a, const ItemChunk& b) {
    return std::pair(a.storage.file, a.storage.offset) <
           std::pair(b.storage.file, b.storage.offset);
  };
  std::sort(chunks.begin(), chunks.end(), is_before);
  return chunks;
}

std::vector<size_t> ItemStarts(const CheckpointParts& parts,
                               absl::Span<const ItemChunk> chunks) {
  const auto has_parts = [&](const ItemChunk& chunk) {
    const TensorEntry* const tensor = parts.entries[chunk.entry].tensor();
    return tensor != nullptr && !tensor->parts.empty();
  };
  std::vector<size_t> firsts;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (i == 0 || chunks[i].storage != chunks[i - 1].storage ||
        !has_parts(chunks[i]) || !has_parts(chunks[i - 1])) {
      firsts.push_back(i);
    }
  }
  firsts.push_back(chunks.size());
  return firsts;
}

std::vector<uint64_t> ObjectEnds(const CheckpointParts& parts) {
  std::vector<uint64_t> ends(parts.files->names().size());
  for (const CheckpointEntry& entry : parts.entries) {
    const ObjectEntry* object = entry.object();
    if (object == nullptr) continue;
    uint64_t& end = ends[object->item.file];
    end = std::max(end, object->item.offset + object->item.length);
  }
  return ends;
}

}  // namespace dcp
