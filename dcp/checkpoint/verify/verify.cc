// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/verify/verify.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/read/range_reader.h"
#include "dcp/checkpoint/verify/checked_range.h"
#include "dcp/checkpoint/verify/digest_index.h"
#include "dcp/format/torch/torch_archive.h"

namespace dcp {
namespace {

// An index entry's bytes at one place. There may be millions.
struct Item {
  uint32_t file;
  bool empty;  // a tensor without elements: there are no bytes to check
};

struct RangeInPiece {
  CheckedRange range;
  uint32_t piece;
};

class Verifier {
 public:
  Verifier(FileSystem& fs, Checkpoint& checkpoint, VerifyOptions& options)
      : fs_(fs), checkpoint_(checkpoint), options_(options) {}

  absl::StatusOr<VerifyReport> Run() {
    report_.format = checkpoint_.format();
    report_.warnings = LossTexts(checkpoint_.losses());
    CollectItems();
    ChooseSample();
    DCP_RETURN_IF_ERROR(pieces_.Choose(checkpoint_, report_, options_.pieces));
    if (pieces_.IsEmpty()) return std::move(report_);
    found_.resize(pieces_.size());
    CollectLocated();
    const absl::Status digests = digests_.Read(checkpoint_);
    digest_used_.resize(digests_.size());
    DCP_RETURN_IF_ERROR(WithSide(CheckStructure(), ErrorSide::kSource));
    DCP_RETURN_IF_ERROR(WithSide(CollectTorchFiles(), ErrorSide::kSource));
    DCP_RETURN_IF_ERROR(
        WithSide(AddDamagedIndices(digests), ErrorSide::kSource));
    AddChunkDigests();
    CountUnchecked();
    DCP_RETURN_IF_ERROR(CheckRanges());
    return std::move(report_);
  }

 private:
  // The comparison's result for one stretch or one item.
  struct Outcome {
    uint64_t num_bytes = 0;
    uint64_t num_crcs = 0;
    uint64_t num_digests = 0;
    std::vector<VerifyFinding> damages;
  };

  VerifyFinding DamageFinding(const CheckedRange& range,
                              std::string problem) const {
    return {.name = std::string(range.name),
            .file = checkpoint_.files().names()[range.file],
            .offset = range.offset,
            .problem = std::move(problem)};
  }

  void CollectItems() {
    first_items_.reserve(checkpoint_.entries().size());
    for (const CheckpointEntry& entry : checkpoint_.entries()) {
      first_items_.push_back(items_.size());
      if (const ObjectEntry* object = entry.object()) {
        ++report_.num_objects;
        items_.push_back({object->item.file, /*empty=*/false});
        continue;
      }
      ++report_.num_tensors;
      const TensorEntry& tensor = *entry.tensor();
      for (size_t c = 0; c < tensor.boxes.size(); ++c) {
        ++report_.num_chunks;
        items_.push_back({tensor.locations[c].item.file,
                          Volume(tensor.boxes[c].sizes) == 0});
      }
    }
    first_items_.push_back(items_.size());
  }

  // Adds damage to indices and headers. `digests` is the status from reading
  // digests.
  absl::Status AddDamagedIndices(const absl::Status& digests) {
    std::vector<absl::Status> damages = checkpoint_.damages();
    damages.push_back(digests.ok() ? checkpoint_.CheckRecordedIndex()
                                   : digests);
    for (const absl::Status& damage : damages) {
      if (damage.ok()) continue;
      if (!IsAboutBytes(damage)) return damage;
      found_[0].findings.push_back(IndexFinding(damage));
    }
    return absl::OkStatus();
  }

  void AddRange(const CheckedRange& range, uint32_t piece) {
    if (pieces_.Wants(piece)) ranges_.push_back({range, piece});
  }

  // Collects the records in DCP items that opening has located. Objects in such
  // an item were read together with their pickle's CRC-32.
  void CollectLocated() {
    absl::flat_hash_set<std::pair<uint32_t, uint64_t>> seen;
    size_t item = 0;
    for (const CheckpointEntry& entry : checkpoint_.entries()) {
      if (const ObjectEntry* object = entry.object()) {
        covered_[item++] = object->located && object->has_crc;
        continue;
      }
      for (const ChunkLocation& location : entry.tensor()->locations) {
        const size_t own = item++;
        const uint32_t file = location.item.file;
        const auto& [offset, length, crc] = location.record;
        if (length == 0 || checkpoint_.IsTorchFile(file)) continue;
        covered_[own] = true;
        if (!sampled_[own] || !seen.emplace(file, offset).second) continue;
        AddRange({.file = file,
                  .offset = offset,
                  .length = length,
                  .name = entry.fqn,
                  .crc = crc,
                  .digest = std::nullopt},
                 pieces_.ItemPiece(own));
      }
    }
  }

  // Checks that every item agrees with the index, and compares all bytes read
  // for that with their checksums at once. Only if something is wrong, checks
  // items one by one, to name everything that is.
  absl::Status CheckStructure() {
    const ItemVisitor visitor = [this](const VisitedItem& item) {
      CheckItem(item);
    };
    const std::vector<uint32_t> entries = pieces_.Entries();
    const absl::Status all =
        checkpoint_.Locate(entries, options_.stop, visitor);
    if (all.ok() || !IsAboutBytes(all)) return all;
    for (const uint32_t i : entries) {
      const absl::Status status = checkpoint_.Locate(absl::MakeConstSpan(&i, 1),
                                                     options_.stop, visitor);
      if (status.ok()) continue;
      if (!IsAboutBytes(status)) return status;
      AddStructureFinding(i, status);
    }
    return absl::OkStatus();
  }

  void AddStructureFinding(uint32_t entry, const absl::Status& status) {
    VerifyReport& piece = found_[pieces_.EntryPiece(entry)];
    piece.findings.push_back(EntryFinding(checkpoint_, entry, status));
    for (size_t i = first_items_[entry]; i < first_items_[entry + 1]; ++i) {
      if (visited_[i]) continue;
      covered_[i] = true;  // not by a checksum, but by the finding
      if (sampled_[i]) ++piece.num_items_missed;
    }
  }

  void ChooseSample() {
    const double share = options_.sample_percent / 100;
    report_.num_items = items_.size();
    sampled_.resize(items_.size());
    covered_.resize(items_.size());
    visited_.resize(items_.size());
    std::vector<bool> file_sampled(checkpoint_.files().names().size());
    for (size_t i = 0; i < items_.size(); ++i) {
      sampled_[i] = std::floor(static_cast<double>(i + 1) * share) !=
                    std::floor(static_cast<double>(i) * share);
      covered_[i] = items_[i].empty;
      if (sampled_[i] && !items_[i].empty) file_sampled[items_[i].file] = true;
    }
    for (size_t i = 0; i < items_.size(); ++i) {
      if (!items_[i].empty && !file_sampled[items_[i].file]) {
        file_sampled[items_[i].file] = sampled_[i] = true;
      }
      if (sampled_[i]) ++report_.num_items_checked;
    }
  }

  // Checks one item's zip records: those in memory now, the others later.
  // Called by several threads.
  void CheckItem(const VisitedItem& visited) {
    const ItemChunk& first = visited.chunks[0];
    const auto item_of = [this](const ItemChunk& chunk) {
      return first_items_[chunk.entry] + chunk.chunk;
    };
    const uint32_t piece = pieces_.ItemPiece(item_of(first));
    if (!pieces_.Wants(piece) ||
        std::none_of(
            visited.chunks.begin(), visited.chunks.end(),
            [&](const ItemChunk& c) { return sampled_[item_of(c)]; })) {
      return;
    }
    const std::vector<ZipRecord>& records = visited.archive->records;
    bool covered = !records.empty();
    Outcome outcome;
    std::vector<CheckedRange> unread;
    std::vector<size_t> digests;
    for (const ZipRecord& record : records) {
      if (record.size == 0) continue;
      covered = covered && HasCrc(record);
      if (!HasCrc(record)) continue;
      CheckedRange range =
          RecordRange(first.storage.file, first.storage.offset, record,
                      checkpoint_.entries()[first.entry].fqn);
      const std::optional<size_t> digest =
          digests_.Find(range.file, range.offset, range.length);
      if (digest.has_value()) {
        range.digest = digests_[*digest].digest;
        digests.push_back(*digest);
      }
      const ByteSpan bytes = visited.bytes(record.payload_offset, record.size);
      if (bytes.data() == nullptr) {
        unread.push_back(range);
        continue;
      }
      const uint32_t crc = ExtendCrc32(0, bytes);
      Compare(range, crc, range.digest.has_value() ? Xxh3Digest(bytes) : 0,
              outcome);
    }
    absl::MutexLock lock(&mutex_);
    if (visited_[item_of(first)]) return;
    for (const ItemChunk& chunk : visited.chunks) {
      visited_[item_of(chunk)] = true;
      if (covered) covered_[item_of(chunk)] = true;
    }
    for (const size_t digest : digests) digest_used_[digest] = true;
    for (const CheckedRange& range : unread) AddRange(range, piece);
    Add(std::move(outcome), piece);
  }

  // Collects the items in whole torch.save files, which are checked file by
  // file: items share their records.
  absl::Status CollectTorchFiles() {
    const auto num_files =
        static_cast<uint32_t>(checkpoint_.files().names().size());
    std::vector<std::vector<TorchFileItem>> items(num_files);
    std::vector<std::vector<size_t>> places(num_files);  // in items_
    size_t place = 0;
    for (uint32_t i = 0; i < checkpoint_.entries().size(); ++i) {
      const CheckpointEntry& entry = checkpoint_.entries()[i];
      const size_t num_items =
          entry.tensor() == nullptr ? 1 : entry.tensor()->boxes.size();
      for (uint32_t c = 0; c < num_items; ++c, ++place) {
        const uint32_t file = items_[place].file;
        if (!checkpoint_.IsTorchFile(file)) continue;
        items[file].push_back(
            {.entry = i, .chunk = c, .sampled = sampled_[place]});
        places[file].push_back(place);
      }
    }
    for (uint32_t file = 0; file < num_files; ++file) {
      if (!checkpoint_.IsTorchFile(file)) continue;
      absl::StatusOr<std::vector<ZipRecord>> read =
          ReadTorchFileRecords(fs_, checkpoint_, file);
      if (!read.ok() && !IsAboutBytes(read.status())) return read.status();
      const std::vector<ZipRecord>& records = file_records_.emplace_back();
      if (read.ok()) file_records_.back() = *std::move(read);
      const TorchFileRanges found =
          TorchFileRecordRanges(checkpoint_, file, records, items[file]);
      for (const CheckedRange& range : found.ranges) {
        AddRange(range, pieces_.LastPieceAt(file, range.offset));
      }
      for (size_t i = 0; i < places[file].size(); ++i) {
        covered_[places[file][i]] = found.covered[i];
      }
    }
    return absl::OkStatus();
  }

  // For payloads without a recorded CRC. Those with one are read once for both.
  void AddChunkDigests() {
    if (digests_.size() == 0) return;
    uint32_t item = 0;
    for (const CheckpointEntry& entry : checkpoint_.entries()) {
      if (entry.object() != nullptr) {
        ++item;
        continue;
      }
      const TensorEntry& tensor = *entry.tensor();
      for (size_t c = 0; c < tensor.boxes.size(); ++c) {
        const uint32_t owner = item++;
        // A tensor without elements begins where its neighbour does.
        if (items_[owner].empty || !sampled_[owner]) continue;
        if (!pieces_.Wants(pieces_.ItemPiece(owner))) continue;
        const ChunkLocation& location = tensor.locations[c];
        const std::optional<size_t> digest =
            digests_.Find(location.item.file, location.payload_offset,
                          static_cast<uint64_t>(Volume(tensor.boxes[c].sizes)) *
                              ElementSize(tensor.dtype));
        if (!digest.has_value() || digest_used_[*digest]) continue;
        covered_[owner] = true;
        AddRange({.file = location.item.file,
                  .offset = digests_[*digest].offset,
                  .length = digests_[*digest].length,
                  .name = entry.fqn,
                  .crc = std::nullopt,
                  .digest = digests_[*digest].digest},
                 pieces_.ItemPiece(owner));
      }
    }
  }

  // Reads the ranges in file order and compares.
  absl::Status CheckRanges() {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const RangeInPiece& a, const RangeInPiece& b) {
                return std::tie(a.piece, a.range.file, a.range.offset) <
                       std::tie(b.piece, b.range.file, b.range.offset);
              });
    DCP_RETURN_IF_ERROR(WithSide(DropUnreadable(), ErrorSide::kSource));
    std::vector<FileRange> stretches;
    stretches.reserve(ranges_.size());
    uint64_t bytes_to_read = 0;
    for (const auto& [range, piece] : ranges_) {
      bytes_to_read += range.length;
      stretches.push_back({range.file, range.offset, range.length});
    }
    // Bytes that were compared in memory with their item count as read.
    uint64_t bytes_compared = 0;
    for (const VerifyReport& found : found_) {
      bytes_compared += found.bytes_checked;
    }
    if (options_.stats != nullptr) options_.stats->bytes_read += bytes_compared;
    if (options_.on_plan != nullptr) {
      options_.on_plan(bytes_compared + bytes_to_read);
    }
    const absl::Status read = ReadRanges(
        fs_, checkpoint_.files(), stretches,
        {.memory_bytes = options_.memory_bytes,
         .stop = options_.stop,
         .stats = options_.stats},
        [this](size_t i, uint64_t begin, ByteSpan bytes) -> absl::Status {
          if (begin == 0) {
            DCP_RETURN_IF_ERROR(FinishBefore(ranges_[i].piece));
          }
          CheckStretch(ranges_[i], begin, bytes);
          return absl::OkStatus();
        });
    if (read.ok()) return FinishBefore(pieces_.size());
    if (absl::IsDataLoss(read))
      DCP_RETURN_IF_ERROR(checkpoint_.CheckUnchanged());
    return read;
  }

  // Finishes all pieces before this one: their bytes have been compared.
  absl::Status FinishBefore(uint32_t piece) {
    for (; next_ < piece; ++next_) {
      if (!pieces_.Wants(next_)) continue;
      DCP_RETURN_IF_ERROR(checkpoint_.CheckUnchanged());
      report_.Add(found_[next_]);
      if (options_.pieces == nullptr) continue;
      DCP_RETURN_IF_ERROR(options_.pieces->on_piece(next_, found_[next_]));
    }
    return absl::OkStatus();
  }

  // Ranges that reach past their file's end become findings and are not read.
  absl::Status DropUnreadable() {
    absl::Status trouble;
    std::erase_if(ranges_, [&](const RangeInPiece& checked) {
      const auto& [range, piece] = checked;
      const absl::Status status = checkpoint_.files().CheckRange(
          range.file, range.offset, range.length);
      if (status.ok()) return false;
      if (!IsAboutBytes(status)) trouble.Update(status);
      found_[piece].findings.push_back(
          DamageFinding(range, std::string(status.message())));
      return true;
    });
    return trouble;
  }

  void CheckStretch(const RangeInPiece& checked, uint64_t begin,
                    ByteSpan bytes) {
    const CheckedRange& range = checked.range;
    if (begin == 0) {
      crc_ = 0;
      digest_.Reset();
    }
    if (range.crc.has_value()) crc_ = ExtendCrc32(crc_, bytes);
    if (range.digest.has_value()) digest_.Update(bytes);
    if (begin + bytes.size() < range.length) return;
    Outcome outcome;
    Compare(range, crc_, range.digest.has_value() ? digest_.Value() : 0,
            outcome);
    absl::MutexLock lock(&mutex_);
    Add(std::move(outcome), checked.piece);
  }

  // Compares a whole stretch's checksums with the recorded ones.
  void Compare(const CheckedRange& range, uint32_t crc, uint64_t digest,
               Outcome& outcome) const {
    outcome.num_bytes += range.length;
    if (range.crc.has_value()) {
      ++outcome.num_crcs;
      if (crc != *range.crc) {
        outcome.damages.push_back(DamageFinding(
            range, absl::StrFormat("CRC-32 of %d bytes is %08x, recorded %08x",
                                   range.length, crc, *range.crc)));
      }
    }
    if (range.digest.has_value()) {
      ++outcome.num_digests;
      if (digest != *range.digest) {
        outcome.damages.push_back(DamageFinding(
            range,
            absl::StrFormat("digest of %d bytes is %016x, recorded %016x",
                            range.length, digest, *range.digest)));
      }
    }
  }

  void Add(Outcome outcome, uint32_t piece)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    VerifyReport& found = found_[piece];
    found.bytes_checked += outcome.num_bytes;
    found.num_crcs_checked += outcome.num_crcs;
    found.num_digests_checked += outcome.num_digests;
    std::move(outcome.damages.begin(), outcome.damages.end(),
              std::back_inserter(found.findings));
  }

  void CountUnchecked() {
    for (size_t i = 0; i < items_.size(); ++i) {
      if (sampled_[i] && !covered_[i]) {
        ++found_[pieces_.ItemPiece(i)].num_items_unchecked;
      }
    }
  }

  FileSystem& fs_;
  Checkpoint& checkpoint_;
  VerifyOptions& options_;
  std::vector<size_t> first_items_;  // for each entry, and then the total
  std::vector<Item> items_;
  std::vector<bool> sampled_;
  ChosenPieces pieces_;
  DigestIndex digests_;
  // The index's counts, and the findings in the finished pieces.
  VerifyReport report_;
  uint32_t next_ = 0;  // the first piece that is not finished
  // These change under the mutex while items are visited:
  absl::Mutex mutex_;
  std::vector<VerifyReport> found_;  // by piece
  std::vector<bool> visited_;
  std::vector<bool> covered_;                        // by a CRC or a digest
  std::vector<bool> digest_used_;                    // with a CRC
  std::vector<RangeInPiece> ranges_;                 // to be read
  std::deque<std::vector<ZipRecord>> file_records_;  // .pt files' records
  // For the range being checked:
  uint32_t crc_ = 0;
  Digest64 digest_;
};

}  // namespace

absl::StatusOr<VerifyReport> VerifyCheckpoint(FileSystem& fs,
                                              absl::string_view path,
                                              VerifyOptions options) {
  if (!(options.sample_percent > 0 && options.sample_percent <= 100)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sample percentage ", options.sample_percent,
                     " is not above 0 and at most 100"));
  }
  OpenOptions open = options.open;
  open.locate_memory_bytes = options.memory_bytes;
  open.check_index = false;  // damage is a finding
  absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint =
      Checkpoint::Open(fs, path, open, options.stop);
  if (!checkpoint.ok()) {
    return WithSide(checkpoint.status(), ErrorSide::kSource);
  }
  return Verifier(fs, **checkpoint, options).Run();
}

}  // namespace dcp
