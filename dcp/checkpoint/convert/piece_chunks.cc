#include "dcp/checkpoint/convert/piece_chunks.h"

#include <algorithm>
#include <cstddef>

#include "dcp/tensor/box.h"
#include "dcp/tensor/metadata.h"

namespace dcp {
PieceChunks::PieceChunks(const Checkpoint& source,
                         absl::Span<const uint32_t> entries,
                         const Output& output,
                         absl::Span<const FilePiece> pieces)
    : source_(source), output_(output), pieces_(pieces) {
  absl::flat_hash_map<const TensorEntry*, uint32_t> entry_of;
  for (const uint32_t i : entries) {
    const CheckpointEntry& entry = source.entries()[i];
    if (entry.tensor() != nullptr) {
      entry_of[entry.tensor()] = i;
      continue;
    }
    for (const auto& [identity, tensor] : entry.object()->tensors) {
      entry_of[&tensor] = i;
    }
  }
  for (uint32_t i = 0; i < output.payloads.size(); ++i) {
    const TensorEntry* const tensor = output.payloads[i].stored;
    const auto found = entry_of.find(tensor);
    entry_of_.push_back(found == entry_of.end() ? kNone : found->second);
    if (found == entry_of.end() || output.payloads[i].num_bytes() == 0) {
      continue;
    }
    first_payload_.try_emplace(found->second, i);
    Stored& stored = stored_[tensor];
    stored.payloads.push_back(i);
    if (stored.chunks == nullptr) {
      stored.chunks = std::make_unique<ChunkIndex>(tensor->boxes);
    }
  }
  for (const uint32_t i : entries) {
    if (!first_payload_.contains(i)) without_payload_.push_back(i);
  }
}

void PieceChunks::ForEachChunk(
    absl::Span<const uint32_t> numbers,
    absl::FunctionRef<void(uint32_t payload, EntryChunk chunk)> visit) const {
  for (const uint32_t number : numbers) {
    const FilePiece& piece = pieces_[number];
    const FileLayout& layout = output_.files[piece.file].layout;
    for (uint32_t i = piece.first_part; i < piece.end_part; ++i) {
      const LayoutPart& part = layout.parts()[i];
      if (part.payload_length == 0) continue;
      const uint32_t entry = entry_of_[part.payload];
      if (entry == kNone) continue;
      if (source_.entries()[entry].tensor() == nullptr) {
        visit(part.payload, {entry, 0});
        continue;
      }
      const Payload& payload = output_.payloads[part.payload];
      stored_.at(payload.stored)
          .chunks->ForEachOverlap(payload.box, [&](size_t c, const Box&) {
            visit(part.payload, {entry, static_cast<uint32_t>(c)});
          });
    }
  }
}

// Whether no payload before has elements of the chunk.
bool PieceChunks::IsFirst(uint32_t payload, const EntryChunk& chunk) const {
  if (source_.entries()[chunk.entry].tensor() == nullptr) {
    return first_payload_.at(chunk.entry) == payload;
  }
  const TensorEntry& tensor = *output_.payloads[payload].stored;
  for (const uint32_t before : stored_.at(&tensor).payloads) {
    if (before == payload) break;
    const Box& box = output_.payloads[before].box;
    if (Intersect(box, tensor.boxes[chunk.chunk]).has_value()) return false;
  }
  return true;
}

// Adds those of the entries without a payload, if they belong to one of the
// pieces, and sorts all.
void PieceChunks::Complete(absl::Span<const uint32_t> numbers,
                           std::vector<EntryChunk>& chunks) const {
  if (std::find(numbers.begin(), numbers.end(), 0) != numbers.end()) {
    for (const uint32_t i : without_payload_) {
      const TensorEntry* const tensor = source_.entries()[i].tensor();
      const size_t num_chunks = tensor == nullptr ? 1 : tensor->boxes.size();
      for (uint32_t c = 0; c < num_chunks; ++c) chunks.push_back({i, c});
    }
  }
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
}

std::vector<EntryChunk> PieceChunks::Needed(
    absl::Span<const uint32_t> numbers) const {
  std::vector<EntryChunk> chunks;
  ForEachChunk(numbers, [&](uint32_t, EntryChunk chunk) {
    if (chunks.empty() || chunks.back() != chunk) chunks.push_back(chunk);
  });
  Complete(numbers, chunks);
  return chunks;
}

std::vector<EntryChunk> PieceChunks::Owned(
    absl::Span<const uint32_t> numbers) const {
  std::vector<EntryChunk> chunks;
  ForEachChunk(numbers, [&](uint32_t payload, EntryChunk chunk) {
    if (IsFirst(payload, chunk)) chunks.push_back(chunk);
  });
  Complete(numbers, chunks);
  return chunks;
}

}  // namespace dcp
