// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/pieces.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/numeric/int128.h"
#include "dcp/base/check.h"

namespace dcp {
namespace {

// Cuts one file.
class PieceCutter {
 public:
  PieceCutter(uint32_t file, const FileToCut& spec)
      : file_(file), parts_(spec.layout->parts()), spec_(spec) {
    FindCuts();
  }

  void Cut(uint64_t piece_bytes, std::vector<FilePiece>& pieces) const {
    if (parts_.empty()) {
      pieces.push_back({.file = file_});
      return;
    }
    size_t first = 0;
    for (size_t i = 1; i < parts_.size(); ++i) {
      const bool full = parts_[i].offset - parts_[first].offset >= piece_bytes;
      if (!full || !may_cut_[i]) continue;
      pieces.push_back(MakePiece(first, i));
      first = i;
    }
    pieces.push_back(MakePiece(first, parts_.size()));
  }

 private:
  // Finds the parts in front of which the file may be cut: parts with payload,
  // unless a literal behind it needs checksums from before the cut. Only the
  // file's last literal may need them, because it can be left out at the end of
  // a piece.
  void FindCuts() {
    may_cut_.resize(parts_.size());
    size_t needed = parts_.size();  // by the literals behind, from this part on
    for (size_t i = parts_.size(); i-- > 0;) {
      may_cut_[i] = parts_[i].payload_length > 0 && needed >= i;
      const bool is_tail =
          i + 1 == parts_.size() && parts_[i].payload_length == 0;
      if (!is_tail) needed = std::min<size_t>(needed, parts_[i].needs_from);
    }
  }

  FilePiece MakePiece(size_t first, size_t end) const {
    FilePiece piece{.file = file_,
                    .first_part = static_cast<uint32_t>(first),
                    .end_part = static_cast<uint32_t>(end)};
    piece.offset = IsMissing(first, first) ? parts_[first].payload_offset()
                                           : parts_[first].offset;
    const LayoutPart& last = parts_[end - 1];
    const uint64_t stop =
        last.payload_length == 0 && end - 1 > first && IsMissing(end - 1, first)
            ? last.offset
            : last.end();
    piece.length = stop - piece.offset;
    return piece;
  }

  // Whether the literal of `part` is in no piece, if the part's piece begins at
  // `first`.
  bool IsMissing(size_t part, size_t first) const {
    if (part == 0 && spec_.head_is_last) return true;
    return parts_[part].needs_from < first;
  }

  const uint32_t file_;
  const std::vector<LayoutPart>& parts_;
  const FileToCut& spec_;
  std::vector<bool> may_cut_;
};

}  // namespace

std::vector<FilePiece> CutIntoPieces(absl::Span<const FileToCut> files,
                                     uint64_t piece_bytes) {
  std::vector<FilePiece> pieces;
  for (uint32_t i = 0; i < files.size(); ++i) {
    PieceCutter(i, files[i]).Cut(piece_bytes, pieces);
  }
  return pieces;
}

ItemPieces CutItems(absl::Span<const StoredItem> items, uint64_t piece_bytes) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  const auto place = [&](uint32_t i) {
    return std::pair(items[i].file, items[i].offset);
  };
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return place(a) < place(b); });
  ItemPieces cut{.pieces = {{}}, .piece_of_item = {}};
  cut.piece_of_item.resize(items.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const StoredItem& item = items[order[i]];
    const bool is_full = cut.pieces.back().length >= piece_bytes;
    if (i > 0 && is_full && place(order[i]) != place(order[i - 1])) {
      cut.pieces.push_back({.file = item.file, .offset = item.offset});
    }
    cut.pieces.back().length += item.length;
    cut.piece_of_item[order[i]] = static_cast<uint32_t>(cut.pieces.size() - 1);
  }
  return cut;
}

std::vector<uint32_t> SharePieces(absl::Span<const FilePiece> pieces,
                                  const Share& share) {
  DCP_CHECK(share.index < share.count);
  uint64_t total = 0;
  for (const FilePiece& piece : pieces) total += piece.length;
  std::vector<uint32_t> numbers;
  uint64_t before = 0;
  for (uint32_t i = 0; i < pieces.size(); ++i) {
    const absl::uint128 middle =
        absl::uint128(before) * 2 + pieces[i].length;  // twice
    before += pieces[i].length;
    const uint64_t owner =
        total == 0
            ? i % share.count
            : std::min<uint64_t>(absl::Uint128Low64(middle * share.count /
                                                    (absl::uint128(total) * 2)),
                                 share.count - 1);
    if (owner == share.index) numbers.push_back(i);
  }
  return numbers;
}

std::vector<MissingLiteral> LiteralsOutside(
    absl::Span<const FileToCut> files, absl::Span<const FilePiece> pieces) {
  std::vector<MissingLiteral> missing;
  size_t next = 0;
  for (uint32_t file = 0; file < files.size(); ++file) {
    const std::vector<LayoutPart>& parts = files[file].layout->parts();
    for (uint32_t part = 0; part < parts.size(); ++part) {
      while (next < pieces.size() &&
             (pieces[next].file < file ||
              (pieces[next].file == file && pieces[next].end_part <= part))) {
        ++next;
      }
      DCP_CHECK(next < pieces.size() && pieces[next].file == file);
      const FilePiece& piece = pieces[next];
      const uint64_t begin = parts[part].offset;
      const bool inside =
          begin >= piece.offset &&
          parts[part].payload_offset() <= piece.offset + piece.length;
      if (parts[part].literal_length > 0 && !inside) {
        missing.push_back({file, part});
      }
    }
  }
  return missing;
}

}  // namespace dcp
