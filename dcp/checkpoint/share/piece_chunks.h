// SPDX-License-Identifier: Apache-2.0
// PieceChunks: the stored chunks of the source that the pieces of a shared
// conversion need. A worker locates no other chunks. Pure; any thread.
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
  // except for `entries` must outlive this.
  PieceChunks(const Checkpoint& source, absl::Span<const uint32_t> entries,
              const Output& output, absl::Span<const FilePiece> pieces);

  // The chunks that the pieces with these numbers need, sorted. Through a
  // mapping, these are chunks of stored tensors, perhaps with a few that are
  // not needed. The first piece also has the chunks of the entries without
  // payload.
  std::vector<EntryChunk> Needed(absl::Span<const uint32_t> numbers) const;

  // The chunks in Needed that belong to these pieces. Each chunk belongs to one
  // piece that needs it, and the chunks are spread over these pieces.
  std::vector<EntryChunk> Owned(absl::Span<const uint32_t> numbers) const;

 private:
  // A source tensor, also inside an object.
  struct Stored {
    uint32_t entry = 0;  // number among the stored entries
    // Null for a tensor in an object, which is located as one chunk.
    std::unique_ptr<ChunkIndex> chunks = nullptr;
  };
  using Visitor = absl::FunctionRef<void(EntryChunk chunk)>;

  void AddEntry(uint32_t entry);
  void AddStored(const TensorEntry& tensor, uint32_t entry);
  void FindThoseWithoutPayload(absl::Span<const uint32_t> entries);
  void ChooseOwners();
  void ForEachChunkOfPiece(uint32_t number, Visitor visit) const;
  void ForEachPayloadChunk(const Payload& payload, Visitor visit) const;

  const Checkpoint& source_;
  const Output& output_;
  const absl::Span<const FilePiece> pieces_;
  // The tensors that the entries consist of.
  absl::flat_hash_map<const TensorEntry*, Stored> stored_;
  // Tensors in stored entries, if the source is mapped.
  absl::flat_hash_map<const TensorEntry*, uint32_t> entry_of_source_;
  // The piece that a chunk belongs to.
  absl::btree_map<EntryChunk, uint32_t> owner_;
  std::vector<EntryChunk> without_payload_;  // chunks in such entries
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_PIECE_CHUNKS_H_
