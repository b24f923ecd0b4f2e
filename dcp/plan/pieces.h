// SPDX-License-Identifier: Apache-2.0
// Pieces: how one conversion, or verify, is cut into pieces that several
// workers share without speaking to each other. The pieces depend on the files
// alone, so that every worker has the same, however many workers there are.
// Pure; any thread.
//
// A file is cut in front of parts of its layout. The literal of a part may need
// checksums of payloads before it (LayoutPart::needs_from); if these are in
// another piece, the literal is in no piece: whoever has the checksums of all
// pieces writes it.
#ifndef DCP_PLAN_PIECES_H_
#define DCP_PLAN_PIECES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "dcp/plan/file_layout.h"

namespace dcp {

// A stretch of one file.
struct FilePiece {
  uint32_t file = 0;        // its index among the layouts
  uint32_t first_part = 0;  // parts [first_part, end_part) of its layout
  uint32_t end_part = 0;
  uint64_t offset = 0;  // the bytes of it; literals that it lacks are outside
  uint64_t length = 0;

  friend bool operator==(const FilePiece&, const FilePiece&) = default;
};

// The layout of a file that is to be cut.
struct FileToCut {
  const FileLayout* layout = nullptr;
  // The literal of the first part needs the checksums of the whole file.
  bool head_is_last = false;
};

// Pieces of about `piece_bytes` that follow each other: every payload is in one
// of them, whole, so that a payload which is larger makes a larger piece. A
// file without bytes is one piece.
std::vector<FilePiece> CutIntoPieces(absl::Span<const FileToCut> files,
                                     uint64_t piece_bytes);

// Bytes of a file that are read together.
struct StoredItem {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
};

struct ItemPieces {
  // By the file and the offset where they begin; a piece may go on in the files
  // that follow. `length` is the sum of its items; they have no parts.
  std::vector<FilePiece> pieces;
  std::vector<uint32_t> piece_of_item;
};

// Runs of about `piece_bytes` of items that follow each other in the files; the
// first begins at the start of all. Items at the same place are in the same
// piece. There is always a piece, even without items.
ItemPieces CutItems(absl::Span<const StoredItem> items, uint64_t piece_bytes);

// The worker `index` of `count`.
struct Share {
  uint32_t index = 0;
  uint32_t count = 1;
};

// The numbers of the pieces of a share: those whose middle byte lies in that
// share of all bytes. They follow each other; there may be none.
std::vector<uint32_t> PiecesOfShare(absl::Span<const FilePiece> pieces,
                                    const Share& share);

// A literal that no piece has.
struct MissingLiteral {
  uint32_t file = 0;
  uint32_t part = 0;

  friend bool operator==(const MissingLiteral&,
                         const MissingLiteral&) = default;
};

// All of them, in the order of files and parts.
std::vector<MissingLiteral> LiteralsOutside(absl::Span<const FileToCut> files,
                                            absl::Span<const FilePiece> pieces);

}  // namespace dcp

#endif  // DCP_PLAN_PIECES_H_
