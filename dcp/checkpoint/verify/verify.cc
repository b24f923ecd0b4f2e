// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/verify/verify.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/bytes.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/verify/checked_range.h"
#include "dcp/checkpoint/verify/digest_index.h"
#include "dcp/checkpoint/verify/range_checker.h"
#include "dcp/format/torch/torch_archive.h"

namespace dcp {
namespace {

// An index entry's bytes at one place. There may be millions.
struct Item {
  uint32_t file;
  bool empty;  // a tensor without elements: there are no bytes to check
};

// Finds the recorded checksums of all items, and gives the ranges that they
// cover to a RangeChecker.
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
    checker_.emplace(fs_, checkpoint_, pieces_, options_);
    CollectLocated();
    const absl::Status digests = digests_.Read(checkpoint_);
    digest_used_.resize(digests_.size());
    DCP_RETURN_IF_ERROR(WithSide(CheckStructure(), ErrorSide::kSource));
    DCP_RETURN_IF_ERROR(WithSide(CollectTorchFiles(), ErrorSide::kSource));
    DCP_RETURN_IF_ERROR(
        WithSide(AddDamagedIndices(digests), ErrorSide::kSource));
    AddChunkDigests();
    CountUnchecked();
    DCP_RETURN_IF_ERROR(checker_->Run(report_));
    return std::move(report_);
  }

 private:
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
      checker_->report(0).findings.push_back(IndexFinding(damage));
    }
    return absl::OkStatus();
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
        checker_->AddRange({.file = file,
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
    VerifyReport& piece = checker_->report(pieces_.EntryPiece(entry));
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
    RangeChecker::Outcome outcome;
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
      checker_->Compare(range, bytes, outcome);
    }
    absl::MutexLock lock(&mutex_);
    if (visited_[item_of(first)]) return;
    for (const ItemChunk& chunk : visited.chunks) {
      visited_[item_of(chunk)] = true;
      if (covered) covered_[item_of(chunk)] = true;
    }
    for (const size_t digest : digests) digest_used_[digest] = true;
    for (const CheckedRange& range : unread) checker_->AddRange(range, piece);
    checker_->Add(std::move(outcome), piece);
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
        checker_->AddRange(range, pieces_.LastPieceAt(file, range.offset));
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
        checker_->AddRange({.file = location.item.file,
                            .offset = digests_[*digest].offset,
                            .length = digests_[*digest].length,
                            .name = entry.fqn,
                            .crc = std::nullopt,
                            .digest = digests_[*digest].digest},
                           pieces_.ItemPiece(owner));
      }
    }
  }

  void CountUnchecked() {
    for (size_t i = 0; i < items_.size(); ++i) {
      if (sampled_[i] && !covered_[i]) {
        ++checker_->report(pieces_.ItemPiece(i)).num_items_unchecked;
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
  VerifyReport report_;
  // These change under the mutex while items are visited:
  absl::Mutex mutex_;
  std::optional<RangeChecker> checker_;  // set once the pieces are chosen
  std::vector<bool> visited_;
  std::vector<bool> covered_;                        // by a CRC or a digest
  std::vector<bool> digest_used_;                    // with a CRC
  std::deque<std::vector<ZipRecord>> file_records_;  // .pt files' records
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
