// SPDX-License-Identifier: Apache-2.0
// Pieces: how one conversion, or verify, is cut into pieces that several
// workers share without communication. The pieces depend only on the files, so
// that all workers have the same pieces, however many workers there are. Pure;
// any thread.
//
// A file is cut in front of parts in its layout. A literal may need checksums
// of payloads before it (LayoutPart::needs_from); if these are in another
// piece, the literal is in no piece: it is written by the process that has the
// checksums from all pieces.
#ifndef DCP_PLAN_PIECES_H_
#define DCP_PLAN_PIECES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "dcp/plan/file_layout.h"

namespace dcp {

// A stretch of one file.
struct FilePiece {
  uint32_t file = 0;        // the file's index among the layouts
  uint32_t first_part = 0;  // parts [first_part, end_part) in the file's layout
  uint32_t end_part = 0;
  // the piece's bytes; literals that are in no piece are outside
  uint64_t offset = 0;
  uint64_t length = 0;

  friend bool operator==(const FilePiece&, const FilePiece&) = default;
};

// The layout of a file that is to be cut.
struct FileToCut {
  const FileLayout* layout = nullptr;
  // The first part's literal needs the checksums of the whole file.
  bool head_is_last = false;
};

// Consecutive pieces of about `piece_bytes`. Each payload lies whole in one
// piece, so that a larger payload makes a larger piece. A file without bytes is
// one piece.
std::vector<FilePiece> CutIntoPieces(absl::Span<const FileToCut> files,
                                     uint64_t piece_bytes);

// Bytes in a file that are read together.
struct StoredItem {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
};

struct ItemPieces {
  // By the file and the offset where they begin; a piece may continue in the
  // following files. `length` is the sum of the items' lengths; these pieces
  // have no parts.
  std::vector<FilePiece> pieces;
  std::vector<uint32_t> piece_of_item;
};

// Runs of consecutive items, about `piece_bytes` each; the first begins at the
// very start. Items at the same place are in the same piece. There is always a
// piece, even without items.
ItemPieces CutItems(absl::Span<const StoredItem> items, uint64_t piece_bytes);

// Worker `index` out of `count`.
struct Share {
  uint32_t index = 0;
  uint32_t count = 1;
};

// The numbers of the pieces in a share: a piece belongs to the share of all
// bytes in which the piece's middle byte lies. The numbers are consecutive;
// there may be none.
std::vector<uint32_t> SharePieces(absl::Span<const FilePiece> pieces,
                                  const Share& share);

// A literal that no piece has.
struct MissingLiteral {
  uint32_t file = 0;
  uint32_t part = 0;

  friend bool operator==(const MissingLiteral&,
                         const MissingLiteral&) = default;
};

// All missing literals, ordered by file and part.
std::vector<MissingLiteral> LiteralsOutside(absl::Span<const FileToCut> files,
                                            absl::Span<const FilePiece> pieces);

}  // namespace dcp

#endif  // DCP_PLAN_PIECES_H_
