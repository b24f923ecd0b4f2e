// SPDX-License-Identifier: Apache-2.0
// The pieces of a verify, for workers that share it: runs of stored items in
// the order of the files, of which a process checks some. Used by one thread;
// const methods by any number.
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

// What a process does of a verify that others share.
struct VerifyPieces {
  uint64_t piece_bytes = kPieceBytes;  // about as long as a piece is
  // Called once before payload is read, with what the index says and all
  // pieces, which are the same whoever asks; returns which of them to check.
  absl::AnyInvocable<absl::StatusOr<std::vector<bool>>(
      const Checkpoint& checkpoint, const VerifyReport& index,
      absl::Span<const FilePiece> pieces)>
      choose;
  // Called for each of these, in their order, with what was found in it.
  absl::AnyInvocable<absl::Status(uint32_t piece, const VerifyReport& found)>
      on_piece;
};

// Which piece everything belongs to, and which are checked here.
class ChosenPieces {
 public:
  // Cuts the items of `checkpoint`, and asks `choose`. If `options` is null,
  // all is one piece, which is checked.
  absl::Status Choose(const Checkpoint& checkpoint, const VerifyReport& index,
                      VerifyPieces* options);

  uint32_t size() const { return static_cast<uint32_t>(wanted_.size()); }
  bool Wants(uint32_t piece) const { return wanted_[piece]; }
  bool WantsNone() const;

  // Items are numbered in the order of the entries and their chunks.
  uint32_t OfItem(size_t item) const {
    return piece_of_item_.empty() ? 0 : piece_of_item_[item];
  }
  // The piece of the first item of an entry; of a tensor without items, the
  // first piece.
  uint32_t OfEntry(uint32_t entry) const {
    return first_items_[entry] == first_items_[entry + 1]
               ? 0
               : OfItem(first_items_[entry]);
  }
  // The last piece that begins there or before.
  uint32_t At(uint32_t file, uint64_t offset) const;
  // The entries that have an item in a piece that is checked.
  std::vector<uint32_t> Entries() const;

 private:
  std::vector<FilePiece> pieces_;  // none if all is one
  std::vector<bool> wanted_;
  std::vector<uint32_t> piece_of_item_;  // empty if all is one
  std::vector<size_t> first_items_;      // of each entry, and the number of all
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_VERIFY_VERIFY_PIECES_H_
