// SPDX-License-Identifier: Apache-2.0
// Cuts a checkpoint's items into pieces, and asks which pieces to check.
// Tested by tests/dcp/checkpoint/share/share_verify_test.cc.
#include "dcp/checkpoint/verify/verify_pieces.h"

#include <algorithm>
#include <utility>

#include "dcp/base/status.h"

namespace dcp {

absl::Status ChosenPieces::Choose(const Checkpoint& checkpoint,
                                  const VerifyReport& index,
                                  VerifyPieces* options) {
  std::vector<StoredItem> stored;
  size_t num_items = 0;
  const auto add = [&](const StorageInfo& item) {
    ++num_items;
    if (options == nullptr) return;
    stored.push_back({item.file, item.offset, item.length});
  };
  for (const CheckpointEntry& entry : checkpoint.entries()) {
    first_items_.push_back(num_items);
    if (entry.object() != nullptr) {
      add(entry.object()->item);
      continue;
    }
    for (size_t c = 0; c < entry.tensor()->boxes.size(); ++c) {
      add(entry.tensor()->locations[c].item);
    }
  }
  first_items_.push_back(num_items);
  if (options == nullptr) {
    wanted_ = {true};
    return absl::OkStatus();
  }
  ItemPieces cut = CutItems(stored, options->piece_bytes);
  pieces_ = std::move(cut.pieces);
  item_pieces_ = std::move(cut.piece_of_item);
  DCP_ASSIGN_OR_RETURN(wanted_, options->choose(checkpoint, index, pieces_));
  return absl::OkStatus();
}

bool ChosenPieces::IsEmpty() const {
  return std::find(wanted_.begin(), wanted_.end(), true) == wanted_.end();
}

uint32_t ChosenPieces::LastPieceAt(uint32_t file, uint64_t offset) const {
  const auto after =
      std::upper_bound(pieces_.begin(), pieces_.end(), std::pair(file, offset),
                       [](const auto& place, const FilePiece& piece) {
                         return place < std::pair(piece.file, piece.offset);
                       });
  return after == pieces_.begin()
             ? 0
             : static_cast<uint32_t>(after - pieces_.begin() - 1);
}

std::vector<uint32_t> ChosenPieces::Entries() const {
  std::vector<uint32_t> entries;
  for (uint32_t i = 0; i + 1 < first_items_.size(); ++i) {
    bool wanted = Wants(EntryPiece(i));
    for (size_t item = first_items_[i]; item < first_items_[i + 1]; ++item) {
      wanted = wanted || Wants(ItemPiece(item));
    }
    if (wanted) entries.push_back(i);
  }
  return entries;
}

}  // namespace dcp
