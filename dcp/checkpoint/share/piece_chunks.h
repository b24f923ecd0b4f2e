// SPDX-License-Identifier: Apache-2.0
// PieceChunks: which stored chunks of the source the pieces of a shared
// conversion are made of, so that a worker looks into no others. Pure; any
// thread.
#ifndef DCP_CHECKPOINT_SHARE_PIECE_CHUNKS_H_
#define DCP_CHECKPOINT_SHARE_PIECE_CHUNKS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/plan/chunk_index.h"
#include "dcp/plan/pieces.h"

namespace dcp {

class PieceChunks {
 public:
  // `entries` of `source` become `output`, which is cut into `pieces`. All
  // outlive this, except for `entries`.
  PieceChunks(const Checkpoint& source, absl::Span<const uint32_t> entries,
              const Output& output, absl::Span<const FilePiece> pieces);

  // The chunks that the pieces with these numbers are made of, sorted; through
  // a mapping, those of the stored tensors, and perhaps a few of which no
  // element is needed. The first piece has those of the entries without a
  // payload, too.
  std::vector<EntryChunk> Needed(absl::Span<const uint32_t> numbers) const;

  // Those of Needed that belong to these pieces: each chunk belongs to one of
  // the pieces that need it, and the chunks are spread over these.
  std::vector<EntryChunk> Owned(absl::Span<const uint32_t> numbers) const;

 private:
  // A tensor of the source, or of one of its objects.
  struct Stored {
    uint32_t entry = 0;  // among the stored ones
    // Null for a tensor of an object, which is located as one chunk.
    std::unique_ptr<ChunkIndex> chunks = nullptr;
  };
  using Visitor = absl::FunctionRef<void(EntryChunk chunk)>;

  void AddEntry(uint32_t entry);
  void AddStored(const TensorEntry& tensor, uint32_t entry);
  void FindThoseWithoutPayload(absl::Span<const uint32_t> entries);
  void ChooseOwners();
  void ForEachChunkOfPiece(uint32_t number, Visitor visit) const;
  void ForEachChunkOf(const Payload& payload, Visitor visit) const;

  const Checkpoint& source_;
  const Output& output_;
  const absl::Span<const FilePiece> pieces_;
  // The tensors that the entries consist of, or are made of.
  absl::flat_hash_map<const TensorEntry*, Stored> stored_;
  // The tensors of the stored entries, if the source is mapped.
  absl::flat_hash_map<const TensorEntry*, uint32_t> entry_of_source_;
  // The piece that a chunk belongs to.
  absl::btree_map<EntryChunk, uint32_t> owner_;
  std::vector<EntryChunk> without_payload_;  // chunks of such entries
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_PIECE_CHUNKS_H_
