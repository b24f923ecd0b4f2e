// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/read/stretch_part.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/crc32_pieces.h"
#include "dcp/base/error_place.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

uint64_t NumCells(uint64_t length) {
  return length / kCheckedCellBytes + (length % kCheckedCellBytes != 0 ? 1 : 0);
}

uint64_t CellEnd(uint64_t cell, uint64_t length) {
  return std::min((cell + 1) * kCheckedCellBytes, length);
}

auto PlaceInSource(const OwnedPart& owned) {
  return std::tie(owned.part->file, owned.part->offset, owned.part->length);
}

// All workers' parts of one stretch.
class Stretch {
 public:
  explicit Stretch(absl::Span<const OwnedPart> parts)
      : parts_(parts), first_(*parts[0].part) {}

  // False if two workers saw different bytes.
  bool Merge() {
    for (const OwnedPart& owned : parts_) {
      const StretchPart& part = *owned.part;
      if (part.crc.has_value()) {
        if (crc_.has_value() && *crc_ != *part.crc) return false;
        crc_ = part.crc;
      }
      for (const auto& [cell, contribution] : part.cells) {
        const auto [known, is_new] = cells_.emplace(cell, contribution);
        if (!is_new && known->second != contribution) return false;
      }
    }
    return true;
  }

  // Whether there is a CRC to compare with.
  bool has_crc() const { return crc_.has_value(); }
  // One worker saw all bytes, and compared them with the digest.
  bool is_compared() const { return cells_.empty(); }

  // The cells that no worker has.
  std::vector<FileRange> Missing() const {
    std::vector<FileRange> missing;
    for (uint64_t cell = 0; cell < NumCells(first_.length); ++cell) {
      if (cells_.contains(cell)) continue;
      const uint64_t begin = cell * kCheckedCellBytes;
      missing.push_back({first_.file, first_.offset + begin,
                         CellEnd(cell, first_.length) - begin});
    }
    return missing;
  }

  // Adds the source's `bytes` at `offset` in the file.
  void Add(uint64_t offset, ByteSpan bytes) {
    sum_.Add(Crc32Pieces::Contribution(
        bytes, first_.offset + first_.length - offset - bytes.size()));
  }

  uint32_t expected() const { return *crc_; }
  uint32_t Value() {
    for (const auto& [cell, contribution] : cells_) sum_.Add(contribution);
    return sum_.Value(first_.length);
  }

  absl::Status Damaged(const SourceFiles& files, absl::string_view what,
                       std::vector<uint32_t>& wrong) const {
    for (const OwnedPart& owned : parts_) wrong.push_back(owned.owner);
    const std::string offset = absl::StrCat(first_.offset);
    return WithSide(
        WithPlace(absl::DataLossError(absl::StrCat(first_.name, ": ",
                                                   files.FullPath(first_.file),
                                                   " at ", offset, ": ", what)),
                  {.file = files.names()[first_.file],
                   .tensor = first_.name,
                   .offset = offset}),
        ErrorSide::kSource);
  }

 private:
  const absl::Span<const OwnedPart> parts_;
  const StretchPart& first_;
  std::optional<uint32_t> crc_;
  std::map<uint64_t, uint32_t> cells_;
  Crc32Pieces sum_;
};

}  // namespace

std::vector<StretchCells::Piece> StretchCells::Cut(uint64_t begin,
                                                   ByteSpan bytes,
                                                   uint64_t length) {
  std::vector<Piece> pieces;
  for (uint64_t at = begin; at < begin + bytes.size();) {
    const uint64_t cell = at / kCheckedCellBytes;
    const uint64_t end = std::min(CellEnd(cell, length), begin + bytes.size());
    pieces.push_back({.cell = cell,
                      .num_bytes = end - at,
                      .contribution = Crc32Pieces::Contribution(
                          bytes.subspan(at - begin, end - at), length - end)});
    at = end;
  }
  return pieces;
}

void StretchCells::Add(const Piece& piece) {
  Cell& cell = cells_[piece.cell];
  cell.num_bytes += piece.num_bytes;
  cell.contribution ^= piece.contribution;
}

std::map<uint64_t, uint32_t> StretchCells::Whole(uint64_t length) const {
  std::map<uint64_t, uint32_t> whole;
  for (const auto& [number, cell] : cells_) {
    if (cell.num_bytes ==
        CellEnd(number, length) - number * kCheckedCellBytes) {
      whole.emplace_hint(whole.end(), number, cell.contribution);
    }
  }
  return whole;
}

absl::Status CheckStretchParts(FileSystem& fs, SourceFiles& files,
                               std::vector<OwnedPart> parts,
                               const ReadRangesOptions& options,
                               SourceCheckReport& report,
                               std::vector<uint32_t>& wrong) {
  std::sort(parts.begin(), parts.end(),
            [](const OwnedPart& a, const OwnedPart& b) {
              return PlaceInSource(a) < PlaceInSource(b);
            });
  for (size_t i = 0; i < parts.size();) {
    size_t end = i + 1;
    while (end < parts.size() &&
           PlaceInSource(parts[end]) == PlaceInSource(parts[i])) {
      ++end;
    }
    const StretchPart& first = *parts[i].part;
    Stretch stretch(absl::MakeConstSpan(parts).subspan(i, end - i));
    i = end;
    if (first.file >= files.names().size()) {
      return absl::DataLossError(absl::StrCat(
          "a record of workers speaks of file ", first.file, " of the source"));
    }
    if (!stretch.Merge()) {
      return stretch.Damaged(
          files, "workers read different bytes: it changed in the meantime",
          wrong);
    }
    if (!stretch.has_crc()) {
      ++report.num_items_unchecked;
      report.bytes_unchecked += first.length;
      continue;
    }
    if (stretch.is_compared()) continue;
    const std::vector<FileRange> missing = stretch.Missing();
    DCP_RETURN_IF_ERROR(
        ReadRanges(fs, files, missing, options,
                   [&](size_t range, uint64_t begin, ByteSpan bytes) {
                     stretch.Add(missing[range].offset + begin, bytes);
                     return absl::OkStatus();
                   }));
    const uint32_t crc = stretch.Value();
    if (crc != stretch.expected()) {
      return stretch.Damaged(
          files,
          absl::StrFormat("CRC-32 of %d bytes, as workers read them, is %08x, "
                          "expected %08x: the file is damaged, or changed "
                          "while they read it",
                          first.length, crc, stretch.expected()),
          wrong);
    }
    ++report.num_crcs_checked;
    report.bytes_checked += first.length;
  }
  return absl::OkStatus();
}

}  // namespace dcp
