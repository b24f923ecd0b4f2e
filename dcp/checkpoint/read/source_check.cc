// SPDX-License-Identifier: Apache-2.0
// [Note: source checks] Reads come in any order, from several lanes, are cut
// wherever blocks end, and bring some bytes twice. A CRC-32 can be assembled
// from pieces in any order, so it costs one word per stretch and a list of seen
// pieces, which is short when reads follow each other. An XXH3-64 cannot:
// stretches that have a digest but no CRC-32 (safetensors) are read again at
// the end, in order, mostly from the page cache. Their CRC-32 is computed both
// times, which shows that the bytes with the right digest are the bytes that
// were written.
#include "dcp/checkpoint/read/source_check.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/check.h"
#include "dcp/base/checksum.h"
#include "dcp/base/error_place.h"
#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/open/recorded_digests.h"

namespace dcp {

void SourceCheckReport::Add(const SourceCheckReport& other) {
  checked = checked || other.checked;
  num_crcs_checked += other.num_crcs_checked;
  num_digests_checked += other.num_digests_checked;
  bytes_checked += other.bytes_checked;
  num_items_unchecked += other.num_items_unchecked;
  bytes_unchecked += other.bytes_unchecked;
}

absl::StatusOr<std::unique_ptr<SourceCheck>> SourceCheck::Make(
    FileSystem& fs, Checkpoint& checkpoint,
    absl::Span<const uint32_t> entries) {
  return Begin(absl::WrapUnique(new SourceCheck(fs, checkpoint)),
               checkpoint.StoredChunks(entries));
}

absl::StatusOr<std::unique_ptr<SourceCheck>> SourceCheck::MakeOneOfSeveral(
    FileSystem& fs, Checkpoint& checkpoint, absl::Span<const EntryChunk> chunks,
    std::vector<EntryChunk> owned) {
  std::unique_ptr<SourceCheck> check(new SourceCheck(fs, checkpoint));
  check->owned_ = std::move(owned);
  return Begin(std::move(check), chunks);
}

absl::StatusOr<std::unique_ptr<SourceCheck>> SourceCheck::Begin(
    std::unique_ptr<SourceCheck> check, absl::Span<const EntryChunk> chunks) {
  check->Collect(chunks);
  DCP_RETURN_IF_ERROR(WithSide(check->AddDigests(), ErrorSide::kSource));
  check->MergeRanges();
  return check;
}

void SourceCheck::Collect(absl::Span<const EntryChunk> chunks) {
  {
    absl::MutexLock lock(&mutex_);
    report_.checked = true;
  }
  for (const EntryChunk& chunk : chunks) {
    const CheckpointEntry& entry = checkpoint_.stored_entries()[chunk.entry];
    if (const TensorEntry* tensor = entry.tensor()) {
      AddChunk(chunk, *tensor, chunk.chunk);
      continue;
    }
    const ObjectEntry& object = *entry.object();
    if (!object.has_crc) CountUnchecked(chunk, object.item.length);
    for (const auto& [identity, tensor] : object.tensors) {
      for (size_t c = 0; c < tensor.boxes.size(); ++c) {
        AddChunk(chunk, tensor, c);
      }
    }
  }
}

// Adds chunk `c` of a tensor, which is `chunk` or a part of it.
void SourceCheck::AddChunk(const EntryChunk& chunk, const TensorEntry& tensor,
                           size_t c) {
  const uint64_t num_bytes =
      static_cast<uint64_t>(Volume(tensor.boxes[c].sizes)) *
      ElementSize(tensor.dtype);
  if (num_bytes == 0) return;
  const ChunkLocation& location = tensor.locations[c];
  DCP_CHECK(location.located, checkpoint_.stored_entries()[chunk.entry].fqn);
  Range range{.file = location.item.file,
              .chunk = chunk,
              .offset = location.record.offset,
              .length = location.record.length,
              .num_items = 1};
  if (location.record.length > 0) {
    range.crc = location.record.crc;
    ranges_.push_back(std::move(range));
  } else {
    range.offset = location.payload_offset;
    range.length = num_bytes;
    without_crc_.push_back(std::move(range));
  }
}

absl::Status SourceCheck::AddDigests() {
  std::vector<Range> without_crc = std::exchange(without_crc_, {});
  std::vector<ChunkDigest> digests;
  if (!without_crc.empty()) {
    DCP_ASSIGN_OR_RETURN(digests, checkpoint_.ReadRecordedDigests());
  }
  absl::flat_hash_map<std::pair<absl::string_view, uint64_t>,
                      const ChunkDigest*>
      by_place;
  for (const ChunkDigest& digest : digests) {
    by_place[{digest.file, digest.offset}] = &digest;
  }
  for (Range& range : without_crc) {
    const auto found =
        by_place.find({checkpoint_.files().names()[range.file], range.offset});
    if (found == by_place.end() || found->second->length != range.length) {
      CountUnchecked(range.chunk, range.length);
      continue;
    }
    range.digest = found->second->digest;
    ranges_.push_back(std::move(range));
  }
  return absl::OkStatus();
}

// Whether this check, and no other, reports on a chunk.
bool SourceCheck::IsOwn(const EntryChunk& chunk) const {
  return !owned_.has_value() ||
         std::binary_search(owned_->begin(), owned_->end(), chunk);
}

void SourceCheck::CountUnchecked(const EntryChunk& chunk, uint64_t num_bytes) {
  if (!IsOwn(chunk)) return;
  absl::MutexLock lock(&mutex_);
  ++report_.num_items_unchecked;
  report_.bytes_unchecked += num_bytes;
}

// Ranges come tensor by tensor, and each file has them in the tensors' order:
// once they are grouped by file, they are mostly sorted.
void SourceCheck::SortByFile() {
  std::vector<size_t> next(checkpoint_.files().names().size() + 1);
  for (const Range& range : ranges_) ++next[range.file + 1];
  for (size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  std::vector<Range> sorted(ranges_.size());
  for (Range& range : ranges_) sorted[next[range.file]++] = std::move(range);
  ranges_ = std::move(sorted);
}

// Tensors may share a record. No writer makes records that overlap in any other
// way; if they do, the first one counts.
void SourceCheck::MergeRanges() {
  SortByFile();
  const auto is_before = [](const Range& a, const Range& b) {
    return std::tie(a.file, a.offset, a.length) <
           std::tie(b.file, b.offset, b.length);
  };
  if (!std::is_sorted(ranges_.begin(), ranges_.end(), is_before)) {
    std::stable_sort(ranges_.begin(), ranges_.end(), is_before);
  }
  size_t num_kept = 0;
  for (Range& range : ranges_) {
    if (num_kept > 0) {
      Range& before = ranges_[num_kept - 1];
      if (before.file == range.file && before.offset == range.offset &&
          before.length == range.length && before.crc == range.crc &&
          before.digest == range.digest) {
        ++before.num_items;
        continue;
      }
      if (before.file == range.file &&
          range.offset < before.offset + before.length) {
        CountUnchecked(range.chunk, range.length);
        continue;
      }
    }
    if (&ranges_[num_kept] != &range) ranges_[num_kept] = std::move(range);
    ++num_kept;
  }
  ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(num_kept),
                ranges_.end());
  ranges_.shrink_to_fit();
}

// The file's first range that ends after `offset`, if there is one.
std::vector<SourceCheck::Range>::iterator SourceCheck::FirstBeyond(
    uint32_t file, uint64_t offset) {
  return std::partition_point(
      ranges_.begin(), ranges_.end(), [&](const Range& candidate) {
        return std::pair(candidate.file, candidate.offset + candidate.length) <=
               std::pair(file, offset);
      });
}

absl::Status SourceCheck::Saw(uint32_t file, uint64_t offset, ByteSpan bytes) {
  const uint64_t end = offset + bytes.size();
  auto range = FirstBeyond(file, offset);
  for (; range != ranges_.end() && range->file == file && range->offset < end;
       ++range) {
    DCP_RETURN_IF_ERROR(SawInRange(*range, offset, bytes));
  }
  return absl::OkStatus();
}

void SourceCheck::WouldSee(uint32_t file, uint64_t offset, uint64_t length) {
  const uint64_t end = offset + length;
  absl::MutexLock lock(&mutex_);
  for (auto range = FirstBeyond(file, offset);
       range != ranges_.end() && range->file == file && range->offset < end;
       ++range) {
    Claim(*range, std::max(offset, range->offset),
          std::min(end, range->offset + range->length));
  }
}

uint64_t SourceCheck::BytesToFinish(Missing missing) const {
  uint64_t num_bytes = 0;
  absl::MutexLock lock(&mutex_);
  for (const Range& range : ranges_) {
    const uint64_t num_missing = range.length - range.num_bytes_seen;
    if (num_missing > 0 && !IsWanted(range, missing)) continue;
    num_bytes += num_missing;
    if (range.digest.has_value()) num_bytes += range.length;
  }
  return num_bytes;
}

absl::Status SourceCheck::SawInRange(Range& range, uint64_t offset,
                                     ByteSpan bytes) {
  const uint64_t begin = std::max(offset, range.offset);
  const uint64_t range_end = range.offset + range.length;
  const uint64_t end = std::min(offset + bytes.size(), range_end);
  std::vector<Stretch> fresh;
  {
    absl::MutexLock lock(&mutex_);
    fresh = Claim(range, begin, end);
  }
  uint64_t num_bytes = 0;
  uint32_t contribution = 0;
  std::vector<StretchCells::Piece> cells;
  for (const auto& [from, to] : fresh) {
    num_bytes += to - from;
    const ByteSpan piece = bytes.subspan(from - offset, to - from);
    if (!owned_.has_value()) {
      contribution ^= Crc32Pieces::Contribution(piece, range_end - to);
      continue;
    }
    for (const StretchCells::Piece& cell :
         StretchCells::Cut(from - range.offset, piece, range.length)) {
      contribution ^= cell.contribution;
      cells.push_back(cell);
    }
  }
  if (num_bytes == 0) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  for (const StretchCells::Piece& cell : cells) range.cells.Add(cell);
  range.sum.Add(contribution);
  range.num_bytes_added += num_bytes;
  if (!range.complete()) return absl::OkStatus();
  num_stretches_ -= range.seen.size();
  range.seen.clear();
  return range.crc.has_value() ? CompareCrc(range) : absl::OkStatus();
}

// The parts of [begin, end) that were not seen before; marks them as seen.
std::vector<SourceCheck::Stretch> SourceCheck::Claim(Range& range,
                                                     uint64_t begin,
                                                     uint64_t end) {
  std::vector<Stretch> fresh;
  if (range.num_bytes_seen == range.length) return fresh;
  if (range.num_bytes_seen == 0 && end - begin == range.length) {
    range.num_bytes_seen = range.length;
    fresh.emplace_back(begin, end);
    return fresh;
  }
  // The stretches from the one that ends at `begin` or later to the one that
  // begins at `end` or earlier become one.
  auto first = range.seen.upper_bound(begin);
  if (first != range.seen.begin() && std::prev(first)->second >= begin) {
    --first;
  }
  auto last = first;
  Stretch merged(begin, end);
  uint64_t position = begin;
  for (; last != range.seen.end() && last->first <= end; ++last) {
    if (position < last->first) fresh.emplace_back(position, last->first);
    position = std::max(position, last->second);
    merged.first = std::min(merged.first, last->first);
    merged.second = std::max(merged.second, last->second);
  }
  if (position < end) fresh.emplace_back(position, end);
  if (fresh.empty()) return fresh;
  const auto num_merged = static_cast<size_t>(std::distance(first, last));
  // If there is no room for another stretch, the range stays incomplete, and
  // Finish reads the rest.
  if (num_merged == 0 && num_stretches_ >= kMaxSeenStretches) return {};
  range.seen.erase(first, last);
  range.seen.emplace(merged);
  num_stretches_ = num_stretches_ + 1 - num_merged;
  for (const auto& [from, to] : fresh) range.num_bytes_seen += to - from;
  return fresh;
}

absl::Status SourceCheck::Damaged(const Range& range,
                                  const std::string& what) const {
  const std::string& name = checkpoint_.stored_entries()[range.chunk.entry].fqn;
  const std::string offset = absl::StrCat(range.offset);
  return WithSide(
      WithPlace(absl::DataLossError(absl::StrCat(
                    name, ": ", checkpoint_.files().FullPath(range.file),
                    " at ", offset, ": ", what)),
                {.file = checkpoint_.files().names()[range.file],
                 .tensor = name,
                 .offset = offset}),
      ErrorSide::kSource);
}

absl::Status SourceCheck::CompareCrc(Range& range) {
  const uint32_t crc = range.sum.Value(range.length);
  if (crc != *range.crc) {
    return Damaged(
        range, absl::StrFormat("CRC-32 of %d bytes is %08x, recorded %08x: the "
                               "file is damaged",
                               range.length, crc, *range.crc));
  }
  range.checked = true;
  ++report_.num_crcs_checked;
  report_.bytes_checked += range.length;
  return absl::OkStatus();
}

absl::Status SourceCheck::Finish(const ReadRangesOptions& options,
                                 Missing missing) {
  DCP_RETURN_IF_ERROR(ReadMissing(options, missing));
  DCP_RETURN_IF_ERROR(CheckDigests(options, missing));
  absl::MutexLock lock(&mutex_);
  for (const Range& range : ranges_) {
    // Either the range was not needed, or an earlier run compared it before it
    // recorded the destination files.
    if (range.checked || range.num_bytes_seen == 0) continue;
    if (missing == Missing::kCells) continue;  // parts() reports it
    report_.num_items_unchecked += range.num_items;
    report_.bytes_unchecked += range.num_bytes_seen;
  }
  return absl::OkStatus();
}

// Whether Finish reads the rest of an incomplete range.
bool SourceCheck::IsWanted(const Range& range, Missing missing) const {
  switch (missing) {
    case Missing::kNothing:
      return false;
    case Missing::kLittle:
      return range.length - range.num_bytes_seen <= range.num_bytes_seen;
    case Missing::kCells:
      return range.num_bytes_seen > 0;
    case Missing::kMovedBytes:
      // An earlier run has compared all that it moved, except for checks that
      // only the end of that run would have made.
      return range.num_bytes_seen > 0 || !range.crc.has_value();
  }
  return false;
}

// The gaps between the seen parts of a range. With kCells: each gap up to the
// end of the cell in which it begins, unless it begins with the cell.
void SourceCheck::AddMissing(const Range& range, Missing missing,
                             std::vector<FileRange>& stretches) const {
  const bool by_cells = missing == Missing::kCells &&
                        !(range.digest.has_value() && IsOwn(range.chunk));
  const auto add = [&](uint64_t begin, uint64_t end) {
    if (by_cells) {
      const uint64_t in_cell = (begin - range.offset) % kCheckedCellBytes;
      if (in_cell == 0) return;
      end = std::min(end, begin + kCheckedCellBytes - in_cell);
    }
    stretches.push_back({range.file, begin, end - begin});
  };
  uint64_t position = range.offset;
  for (const auto& [from, to] : range.seen) {
    add(position, from);
    position = to;
  }
  add(position, range.offset + range.length);
}

absl::Status SourceCheck::ReadMissing(const ReadRangesOptions& options,
                                      Missing missing) {
  if (missing == Missing::kNothing) return absl::OkStatus();
  std::vector<FileRange> stretches;
  {
    absl::MutexLock lock(&mutex_);
    for (const Range& range : ranges_) {
      if (range.complete()) continue;
      if (IsWanted(range, missing)) AddMissing(range, missing, stretches);
    }
  }
  return ReadRanges(fs_, checkpoint_.files(), stretches, options,
                    [&](size_t i, uint64_t begin, ByteSpan bytes) {
                      return Saw(stretches[i].file, stretches[i].offset + begin,
                                 bytes);
                    });
}

absl::Status SourceCheck::CheckDigests(const ReadRangesOptions& options,
                                       Missing missing) {
  std::vector<Range*> wanted;
  std::vector<FileRange> stretches;
  for (Range& range : ranges_) {
    if (!range.digest.has_value() || !range.complete()) continue;
    if (missing == Missing::kCells && !IsOwn(range.chunk)) continue;
    wanted.push_back(&range);
    stretches.push_back({range.file, range.offset, range.length});
  }
  uint32_t crc = 0;
  Digest64 digest;
  return ReadRanges(fs_, checkpoint_.files(), stretches, options,
                    [&](size_t i, uint64_t begin, ByteSpan bytes) {
                      if (begin == 0) {
                        crc = 0;
                        digest.Reset();
                      }
                      crc = ExtendCrc32(crc, bytes);
                      digest.Update(bytes);
                      if (begin + bytes.size() < wanted[i]->length) {
                        return absl::OkStatus();
                      }
                      return CompareDigest(*wanted[i], crc, digest.Value());
                    });
}

absl::Status SourceCheck::CompareDigest(Range& range, uint32_t crc,
                                        uint64_t digest) {
  if (digest != *range.digest) {
    return Damaged(
        range, absl::StrFormat(
                   "digest of %d bytes is %016x, recorded %016x: "
                   "the file is damaged, or was replaced without its digests",
                   range.length, digest, *range.digest));
  }
  if (crc != range.sum.Value(range.length)) {
    return Damaged(range, "the file changed while it was read");
  }
  absl::MutexLock lock(&mutex_);
  range.checked = true;
  ++report_.num_digests_checked;
  report_.bytes_checked += range.length;
  return absl::OkStatus();
}

std::vector<StretchPart> SourceCheck::parts() const {
  std::vector<StretchPart> parts;
  absl::MutexLock lock(&mutex_);
  for (const Range& range : ranges_) {
    const bool is_compared = range.checked && range.crc.has_value();
    if (range.num_bytes_seen == 0 || is_compared) continue;
    StretchPart& part = parts.emplace_back();
    part.file = range.file;
    part.offset = range.offset;
    part.length = range.length;
    part.name = checkpoint_.stored_entries()[range.chunk.entry].fqn;
    part.crc = range.checked ? range.sum.Value(range.length) : range.crc;
    if (!range.checked) part.cells = range.cells.Whole(range.length);
  }
  return parts;
}

SourceCheckReport SourceCheck::report() const {
  absl::MutexLock lock(&mutex_);
  return report_;
}

}  // namespace dcp
