// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/share/piece_chunks.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "dcp/checkpoint/mapped/mapped_tensor.h"
#include "dcp/plan/strided/strided_piece.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

PieceChunks::PieceChunks(const Checkpoint& source,
                         absl::Span<const uint32_t> entries,
                         const Output& output,
                         absl::Span<const FilePiece> pieces)
    : source_(source), output_(output), pieces_(pieces) {
  if (const MappedEntries* const mapped = source.mapped()) {
    for (size_t i = 0; i < mapped->sources.size(); ++i) {
      entry_of_source_[mapped->sources[i]] = mapped->entry_of_source[i];
    }
  }
  for (const uint32_t entry : entries) AddEntry(entry);
  FindThoseWithoutPayload(entries);
  ChooseOwners();
}

// Any piece that needs a chunk may own it. The choice is as good as random, so
// the work for the chunks does not fall to one piece.
void PieceChunks::ChooseOwners() {
  absl::btree_map<EntryChunk, uint32_t> left;  // until the owner comes
  for (uint32_t i = 0; i < pieces_.size(); ++i) {
    ForEachChunkOfPiece(i, [&](EntryChunk chunk) { ++left[chunk]; });
  }
  for (auto& [chunk, num] : left) {
    const uint32_t mixed = (chunk.entry + chunk.chunk) * 2654435761u;
    num = (mixed >> 8) % num;
  }
  for (uint32_t i = 0; i < pieces_.size(); ++i) {
    ForEachChunkOfPiece(i, [&](EntryChunk chunk) {
      if (left[chunk]-- == 0) owner_.emplace(chunk, i);
    });
  }
}

void PieceChunks::AddEntry(uint32_t entry) {
  const MappedEntries* const mapped = source_.mapped();
  const CheckpointEntry& value = source_.entries()[entry];
  const TensorEntry* const tensor = value.tensor();
  if (tensor == nullptr) {
    const uint32_t stored =
        mapped != nullptr ? mapped->stored[entry].front() : entry;
    for (const auto& [identity, inner] : value.object()->tensors) {
      stored_.try_emplace(&inner, Stored{.entry = stored});
    }
  } else if (tensor->mapped == nullptr) {
    AddStored(*tensor, entry);
  } else {
    for (const TensorEntry* const part : tensor->mapped->sources()) {
      AddStored(*part, entry_of_source_.at(part));
    }
  }
}

void PieceChunks::AddStored(const TensorEntry& tensor, uint32_t entry) {
  const auto [it, is_new] =
      stored_.try_emplace(&tensor, Stored{.entry = entry});
  if (is_new) it->second.chunks = std::make_unique<ChunkIndex>(tensor.boxes);
}

void PieceChunks::FindThoseWithoutPayload(absl::Span<const uint32_t> entries) {
  absl::flat_hash_set<const TensorEntry*> with_payload;
  for (const Payload& payload : output_.payloads) {
    if (payload.num_bytes() > 0) with_payload.insert(payload.stored);
  }
  std::vector<uint32_t> without;
  for (const uint32_t entry : entries) {
    const CheckpointEntry& value = source_.entries()[entry];
    const bool has_payload =
        value.tensor() != nullptr
            ? with_payload.contains(value.tensor())
            : std::any_of(value.object()->tensors.begin(),
                          value.object()->tensors.end(),
                          [&](const auto& inner) {
                            return with_payload.contains(&inner.second);
                          });
    if (!has_payload) without.push_back(entry);
  }
  without_payload_ = source_.StoredChunks(without);
}

void PieceChunks::ForEachChunkOfPiece(uint32_t number, Visitor visit) const {
  const FilePiece& piece = pieces_[number];
  const FileLayout& layout = output_.files[piece.file].layout;
  for (uint32_t i = piece.first_part; i < piece.end_part; ++i) {
    const LayoutPart& part = layout.parts()[i];
    if (part.payload_length == 0) continue;
    ForEachPayloadChunk(output_.payloads[part.payload], visit);
  }
  if (number != 0) return;
  for (const EntryChunk& chunk : without_payload_) visit(chunk);
}

void PieceChunks::ForEachPayloadChunk(const Payload& payload,
                                      Visitor visit) const {
  const auto visit_overlaps = [&](const TensorEntry& tensor, const Box& box) {
    const auto found = stored_.find(&tensor);
    if (found == stored_.end()) return;  // not in the checkpoint
    const Stored& stored = found->second;
    if (stored.chunks == nullptr) {
      visit({stored.entry, 0});
      return;
    }
    stored.chunks->ForEachOverlap(box, [&](size_t chunk, const Box&) {
      visit({stored.entry, static_cast<uint32_t>(chunk)});
    });
  };
  if (payload.stored == nullptr) return;
  const MappedTensor* const mapped = payload.stored->mapped;
  if (mapped == nullptr) {
    visit_overlaps(*payload.stored, payload.box);
    return;
  }
  mapped->ForEachPieceNear(payload.box, [&](const StridedPiece& piece) {
    const TensorEntry* const source = mapped->PieceSource(piece);
    if (source == nullptr) return;
    Clip(piece, PieceSide::kDst, payload.box, [&](const StridedPiece& part) {
      ForEachDensePart(part, [&](const StridedPiece& dense) {
        visit_overlaps(*source, FindBounds(dense, PieceSide::kSrc));
      });
    });
  });
}

std::vector<EntryChunk> PieceChunks::Needed(
    absl::Span<const uint32_t> numbers) const {
  std::vector<EntryChunk> chunks;
  for (const uint32_t number : numbers) {
    ForEachChunkOfPiece(number, [&](EntryChunk chunk) {
      if (chunks.empty() || chunks.back() != chunk) chunks.push_back(chunk);
    });
  }
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  return chunks;
}

std::vector<EntryChunk> PieceChunks::Owned(
    absl::Span<const uint32_t> numbers) const {
  const absl::flat_hash_set<uint32_t> own(numbers.begin(), numbers.end());
  std::vector<EntryChunk> chunks = Needed(numbers);
  std::erase_if(chunks, [&](const EntryChunk& chunk) {
    return !own.contains(owner_.at(chunk));
  });
  return chunks;
}

}  // namespace dcp
