// PieceChunks: which chunks of the source the pieces of a shared conversion are
// made of, so that a worker looks into no others. Pure; any thread.
#ifndef DCP_CHECKPOINT_CONVERT_PIECE_CHUNKS_H_
#define DCP_CHECKPOINT_CONVERT_PIECE_CHUNKS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/open/checkpoint_parts.h"
#include "dcp/checkpoint/write/output.h"
#include "dcp/plan/chunk_index.h"
#include "dcp/plan/pieces.h"

namespace dcp {

class PieceChunks {
 public:
  // `entries` of `source` become `output`, which is cut into `pieces`. All
  // outlive this, except for `entries`.
  PieceChunks(const Checkpoint& source, absl::Span<const uint32_t> entries,
              const Output& output, absl::Span<const FilePiece> pieces);

  // The chunks that the pieces with these numbers are made of, sorted. The
  // first piece has those of the entries without a payload, too.
  std::vector<EntryChunk> Needed(absl::Span<const uint32_t> numbers) const;

  // Those of Needed that no piece before, of all pieces, has a part of: each
  // chunk belongs to one piece.
  std::vector<EntryChunk> Owned(absl::Span<const uint32_t> numbers) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  void ForEachChunk(
      absl::Span<const uint32_t> numbers,
      absl::FunctionRef<void(uint32_t payload, EntryChunk chunk)> visit) const;
  bool IsFirst(uint32_t payload, const EntryChunk& chunk) const;
  void Complete(absl::Span<const uint32_t> numbers,
                std::vector<EntryChunk>& chunks) const;

  const Checkpoint& source_;
  const Output& output_;
  const absl::Span<const FilePiece> pieces_;
  std::vector<uint32_t> entry_of_;  // by payload; or kNone
  // By the tensor that is stored: its chunks, and its payloads in order.
  struct Stored {
    std::unique_ptr<ChunkIndex> chunks;
    std::vector<uint32_t> payloads;
  };
  absl::flat_hash_map<const TensorEntry*, Stored> stored_;
  absl::flat_hash_map<uint32_t, uint32_t> first_payload_;  // by entry
  std::vector<uint32_t> without_payload_;                  // entries
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_PIECE_CHUNKS_H_
