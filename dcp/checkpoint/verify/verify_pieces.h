// SPDX-License-Identifier: Apache-2.0
// The pieces of a verify, for workers that share it: runs of stored items in
// file order; a process checks some pieces. Used by one thread; const methods
// by any number.
#ifndef DCP_CHECKPOINT_VERIFY_VERIFY_PIECES_H_
#define DCP_CHECKPOINT_VERIFY_VERIFY_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/verify/verify_report.h"
#include "dcp/plan/pieces.h"

namespace dcp {

// One process's share of a verify.
struct VerifyPieces {
  uint64_t piece_bytes = kPieceBytes;  // each piece's approximate length
  // Called once before payload is read, with the index's counts and all pieces,
  // which are the same for every process; returns which pieces to check.
  absl::AnyInvocable<absl::StatusOr<std::vector<bool>>(
      const Checkpoint& checkpoint, const VerifyReport& index,
      absl::Span<const FilePiece> pieces)>
      choose;
  // Called for each chosen piece, in order, with the findings in it.
  absl::AnyInvocable<absl::Status(uint32_t piece, const VerifyReport& found)>
      on_piece;
};

// Which piece owns each item and entry, and which pieces are checked here.
class ChosenPieces {
 public:
  // Cuts the items in `checkpoint`, and asks `choose`. If `options` is null,
  // all is one piece, which is checked.
  absl::Status Choose(const Checkpoint& checkpoint, const VerifyReport& index,
                      VerifyPieces* options);

  uint32_t size() const { return static_cast<uint32_t>(wanted_.size()); }
  bool Wants(uint32_t piece) const { return wanted_[piece]; }
  bool IsEmpty() const;

  // The item's piece. Items are numbered in the order of the entries and their
  // chunks.
  uint32_t ItemPiece(size_t item) const {
    return item_pieces_.empty() ? 0 : item_pieces_[item];
  }
  // The piece with the entry's first item; for a tensor without items, the
  // first piece.
  uint32_t EntryPiece(uint32_t entry) const {
    return first_items_[entry] == first_items_[entry + 1]
               ? 0
               : ItemPiece(first_items_[entry]);
  }
  // The last piece that begins at this place or before.
  uint32_t LastPieceAt(uint32_t file, uint64_t offset) const;
  // The entries that have an item in a piece that is checked.
  std::vector<uint32_t> Entries() const;

 private:
  std::vector<FilePiece> pieces_;  // none if all is one
  std::vector<bool> wanted_;
  std::vector<uint32_t> item_pieces_;  // empty if all is one
  std::vector<size_t> first_items_;    // for each entry, and then the total
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_VERIFY_VERIFY_PIECES_H_
