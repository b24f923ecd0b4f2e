#include "dcp/checkpoint/verify.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/error_place.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/digests.h"
#include "dcp/checkpoint/file_reader.h"
#include "dcp/checkpoint/range_reader.h"
#include "dcp/checkpoint/recorded_digests.h"
#include "dcp/format/torch_archive.h"

namespace dcp {
namespace {

// A stretch of a file of which a checksum is recorded.
struct CheckedRange {
  uint32_t file;
  uint64_t offset;
  uint64_t length;
  absl::string_view name;  // of what it belongs to
  std::optional<uint32_t> crc;
  std::optional<uint64_t> digest;
};

// What one index entry stores at one place.
struct Item {
  absl::string_view name;
  StorageInfo storage;
  bool empty;  // a tensor without elements: there are no bytes to check
};

class Verifier {
 public:
  Verifier(FileSystem& fs, Checkpoint& checkpoint, VerifyOptions& options)
      : fs_(fs), checkpoint_(checkpoint), options_(options) {}

  absl::StatusOr<VerifyReport> Run() {
    report_.format = checkpoint_.format();
    CollectItems();
    DCP_RETURN_IF_ERROR(CheckStructure());
    ChooseSample();
    CollectArchiveRanges();
    DCP_RETURN_IF_ERROR(CollectDigests());
    DCP_RETURN_IF_ERROR(CheckRanges());
    CountUnchecked();
    return std::move(report_);
  }

 private:
  void AddFinding(const CheckedRange& range, std::string problem) {
    report_.findings.push_back({.name = std::string(range.name),
                                .file = checkpoint_.files().names()[range.file],
                                .offset = range.offset,
                                .problem = std::move(problem)});
  }

  void CollectItems() {
    for (const CheckpointEntry& entry : checkpoint_.entries()) {
      if (const ObjectEntry* object = entry.object()) {
        ++report_.num_objects;
        items_.push_back({entry.fqn, object->item, /*empty=*/false});
        continue;
      }
      ++report_.num_tensors;
      const TensorEntry& tensor = *entry.tensor();
      for (size_t c = 0; c < tensor.boxes.size(); ++c) {
        ++report_.num_chunks;
        items_.push_back({entry.fqn, tensor.locations[c].item,
                          Volume(tensor.boxes[c].sizes) == 0});
      }
    }
  }

  // Every item is what the index says. One by one only when something is
  // wrong, to name all that is.
  absl::Status CheckStructure() {
    const absl::Status all = checkpoint_.LocateAll(options_.stop);
    if (all.ok() || absl::IsCancelled(all)) return all;
    for (uint32_t i = 0; i < checkpoint_.entries().size(); ++i) {
      const absl::Status status =
          checkpoint_.Locate(absl::MakeConstSpan(&i, 1), options_.stop);
      if (absl::IsCancelled(status)) return status;
      if (!status.ok()) {
        AddStructureFinding(i, status);
      }
    }
    return absl::OkStatus();
  }

  // An error knows its place, but where a file cannot even be opened.
  void AddStructureFinding(uint32_t entry, const absl::Status& status) {
    const ErrorPlace place = PlaceOf(status);
    const CheckpointEntry& found = checkpoint_.entries()[entry];
    VerifyFinding finding{.name = found.fqn,
                          .file = place.file,
                          .problem = std::string(status.message())};
    if (finding.file.empty()) {
      const StorageInfo& item = found.object() != nullptr
                                    ? found.object()->item
                                    : found.tensor()->locations[0].item;
      finding.file = checkpoint_.files().names()[item.file];
      finding.offset = item.offset;
    }
    if (!place.offset.empty() &&
        !absl::SimpleAtoi(place.offset, &finding.offset)) {
      finding.offset = 0;
    }
    report_.findings.push_back(std::move(finding));
  }

  void ChooseSample() {
    const double share = options_.sample_percent / 100;
    report_.num_items = items_.size();
    sampled_.resize(items_.size());
    covered_.resize(items_.size());
    std::vector<bool> file_sampled(checkpoint_.files().names().size());
    for (size_t i = 0; i < items_.size(); ++i) {
      sampled_[i] = std::floor(static_cast<double>(i + 1) * share) !=
                    std::floor(static_cast<double>(i) * share);
      covered_[i] = items_[i].empty;
      if (sampled_[i] && !items_[i].empty) {
        file_sampled[items_[i].storage.file] = true;
      }
    }
    for (size_t i = 0; i < items_.size(); ++i) {
      if (!items_[i].empty && !file_sampled[items_[i].storage.file]) {
        file_sampled[items_[i].storage.file] = sampled_[i] = true;
      }
      if (sampled_[i]) ++report_.num_items_checked;
    }
  }

  // The zip records of the items, or of the archives that .pt files are.
  void CollectArchiveRanges() {
    if (checkpoint_.format() == Format::kSafetensors) return;
    if (checkpoint_.format() == Format::kTorch) {
      CollectFileRanges();
      return;
    }
    for (size_t i = 0; i < items_.size(); ++i) {
      if (!sampled_[i]) continue;
      const StorageInfo& storage = items_[i].storage;
      const std::vector<ZipRecord> records = RecordsOf(storage);
      bool covered = !records.empty();
      for (const ZipRecord& record : records) {
        if (record.size == 0) continue;
        covered = covered && HasCrc(record);
        AddRecord(storage.file, storage.offset, record, items_[i].name);
      }
      covered_[i] = covered_[i] || covered;
    }
  }

  static bool HasCrc(const ZipRecord& record) { return record.crc != 0; }

  // None when it is no zip. What cannot be opened or parsed is a finding of
  // the structure already.
  std::vector<ZipRecord> RecordsOf(const StorageInfo& storage) {
    const absl::StatusOr<File> file = checkpoint_.files().Get(storage.file);
    if (!file.ok()) return {};
    FileReader reader(fs_, *file, storage.offset, storage.length);
    absl::StatusOr<TorchArchive> archive =
        ReadTorchArchive(storage.length, checkpoint_.format() == Format::kTorch,
                         reader.read_at());
    if (!archive.ok()) return {};
    return std::move(archive->records);
  }

  void AddRecord(uint32_t file, uint64_t start, const ZipRecord& record,
                 absl::string_view name) {
    if (record.size == 0 || !HasCrc(record)) return;
    ranges_.push_back({.file = file,
                       .offset = start + record.payload_offset,
                       .length = record.size,
                       .name = name,
                       .crc = record.crc,
                       .digest = std::nullopt});
  }

  // In a .pt file objects lie in data.pkl, tensors anywhere in the record of
  // their storage, which they may share. All records are checked but those
  // that only tensors outside the sample use.
  void CollectFileRanges() {
    // A torch.save file has one item for each entry, in their order.
    size_t begin = 0;
    for (uint32_t file = 0; file < checkpoint_.files().names().size(); ++file) {
      size_t end = begin;
      while (end < items_.size() && items_[end].storage.file == file) ++end;
      CollectRangesOf(file, begin, end);
      begin = end;
    }
  }

  // Of one file, which has the items from `begin` up to `end`.
  void CollectRangesOf(uint32_t file, size_t begin, size_t end) {
    const absl::StatusOr<File> opened = checkpoint_.files().Get(file);
    if (!opened.ok()) return;
    std::vector<ZipRecord>& records =
        file_records_.emplace_back(RecordsOf({file, 0, opened->size}));
    std::sort(records.begin(), records.end(),
              [](const ZipRecord& a, const ZipRecord& b) {
                return a.payload_offset < b.payload_offset;
              });
    enum class Use : uint8_t { kNone, kUnsampled, kSampled };
    std::vector<Use> uses(records.size());
    std::vector<absl::string_view> names;
    bool pickle_has_crc = false;
    for (const ZipRecord& record : records) {
      names.push_back(record.name);
      if (absl::EndsWith(record.name, "/data.pkl")) {
        pickle_has_crc = HasCrc(record);
      }
    }
    // Whether the storage of `tensor` has a CRC.
    const auto use = [&](const TensorEntry& tensor, absl::string_view name,
                         bool sampled) {
      if (tensor.num_bytes() == 0) return true;
      const std::optional<size_t> i =
          RecordAt(records, tensor.locations[0].payload_offset);
      if (!i.has_value()) return false;
      if (uses[*i] != Use::kSampled) {
        uses[*i] = sampled ? Use::kSampled : Use::kUnsampled;
        names[*i] = name;
      }
      return HasCrc(records[*i]);
    };
    for (size_t i = begin; i < end; ++i) {
      const CheckpointEntry& entry = checkpoint_.entries()[i];
      if (entry.tensor() != nullptr) {
        covered_[i] = use(*entry.tensor(), entry.fqn, sampled_[i]);
        continue;
      }
      covered_[i] = pickle_has_crc;
      for (const auto& [identity, tensor] : entry.object()->tensors) {
        if (!use(tensor, entry.fqn, sampled_[i])) covered_[i] = false;
      }
    }
    for (size_t i = 0; i < records.size(); ++i) {
      if (uses[i] == Use::kUnsampled) continue;
      AddRecord(file, 0, records[i], names[i]);
    }
  }

  static std::optional<size_t> RecordAt(const std::vector<ZipRecord>& records,
                                        uint64_t offset) {
    const auto next =
        std::upper_bound(records.begin(), records.end(), offset,
                         [](uint64_t position, const ZipRecord& record) {
                           return position < record.payload_offset;
                         });
    if (next == records.begin()) return std::nullopt;
    const ZipRecord& record = *(next - 1);
    if (offset - record.payload_offset >= record.size) return std::nullopt;
    return static_cast<size_t>(next - records.begin()) - 1;
  }

  absl::Status CollectDigests() {
    absl::StatusOr<std::vector<ChunkDigest>> digests =
        ReadRecordedDigests(fs_, checkpoint_);
    if (!digests.ok()) {
      report_.findings.push_back(
          {.name = "",
           .file = "digests",
           .problem = std::string(digests.status().message())});
      return absl::OkStatus();
    }
    if (digests->empty()) return absl::OkStatus();
    absl::flat_hash_map<absl::string_view, uint32_t> file_index;
    const std::vector<std::string>& names = checkpoint_.files().names();
    for (uint32_t i = 0; i < names.size(); ++i) file_index[names[i]] = i;
    absl::flat_hash_map<std::pair<uint32_t, uint64_t>, const ChunkDigest*>
        by_place;
    for (const ChunkDigest& digest : *digests) {
      const auto it = file_index.find(digest.file);
      if (it != file_index.end()) {
        by_place[{it->second, digest.offset}] = &digest;
      }
    }
    // Payloads that have a CRC too are read once for both.
    for (CheckedRange& range : ranges_) {
      const auto it = by_place.find({range.file, range.offset});
      if (it == by_place.end() || it->second->length != range.length) continue;
      range.digest = it->second->digest;
      by_place.erase(it);
    }
    AddDigestsOfChunks(by_place);
    return absl::OkStatus();
  }

  void AddDigestsOfChunks(
      const absl::flat_hash_map<std::pair<uint32_t, uint64_t>,
                                const ChunkDigest*>& by_place) {
    uint32_t item = 0;
    for (const CheckpointEntry& entry : checkpoint_.entries()) {
      if (entry.object() != nullptr) {
        ++item;
        continue;
      }
      const TensorEntry& tensor = *entry.tensor();
      for (size_t c = 0; c < tensor.boxes.size(); ++c) {
        const uint32_t owner = item++;
        // One without elements begins where its neighbour does.
        if (items_[owner].empty || !sampled_[owner]) continue;
        const ChunkLocation& location = tensor.locations[c];
        const auto it =
            by_place.find({location.item.file, location.payload_offset});
        if (it == by_place.end() ||
            it->second->length !=
                static_cast<uint64_t>(Volume(tensor.boxes[c].sizes)) *
                    ElementSize(tensor.dtype)) {
          continue;
        }
        covered_[owner] = true;
        ranges_.push_back({.file = location.item.file,
                           .offset = it->second->offset,
                           .length = it->second->length,
                           .name = entry.fqn,
                           .crc = std::nullopt,
                           .digest = it->second->digest});
      }
    }
  }

  // Reads the ranges in the order of the files and compares.
  absl::Status CheckRanges() {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const CheckedRange& a, const CheckedRange& b) {
                return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
              });
    DropUnreadable();
    std::vector<FileRange> stretches;
    for (const CheckedRange& range : ranges_) {
      report_.bytes_checked += range.length;
      stretches.push_back({range.file, range.offset, range.length});
    }
    if (options_.on_plan != nullptr) options_.on_plan(report_.bytes_checked);
    DCP_RETURN_IF_ERROR(
        ReadRanges(fs_, checkpoint_.files(), stretches,
                   {.memory_bytes = options_.memory_bytes,
                    .stop = options_.stop,
                    .stats = options_.stats},
                   [this](size_t i, uint64_t begin, ByteSpan bytes) {
                     CheckPiece(ranges_[i], begin, bytes);
                     return absl::OkStatus();
                   }));
    return WithSide(checkpoint_.files().CheckUnchanged(), ErrorSide::kSource);
  }

  // Ranges that reach past their file: findings, not reads.
  void DropUnreadable() {
    std::erase_if(ranges_, [this](const CheckedRange& range) {
      const absl::Status status = checkpoint_.files().CheckRange(
          range.file, range.offset, range.length);
      if (status.ok()) return false;
      AddFinding(range, std::string(status.message()));
      return true;
    });
  }

  void CheckPiece(const CheckedRange& range, uint64_t begin, ByteSpan bytes) {
    if (begin == 0) {
      crc_ = 0;
      digest_.Reset();
    }
    if (range.crc.has_value()) crc_ = ExtendCrc32(crc_, bytes);
    if (range.digest.has_value()) digest_.Update(bytes);
    if (begin + bytes.size() < range.length) return;
    if (range.crc.has_value()) {
      ++report_.num_crcs_checked;
      if (crc_ != *range.crc) {
        AddFinding(range,
                   absl::StrFormat("CRC-32 of %d bytes is %08x, recorded %08x",
                                   range.length, crc_, *range.crc));
      }
    }
    if (range.digest.has_value()) {
      ++report_.num_digests_checked;
      if (digest_.Value() != *range.digest) {
        AddFinding(range, absl::StrFormat(
                              "digest of %d bytes is %016x, recorded %016x",
                              range.length, digest_.Value(), *range.digest));
      }
    }
  }

  void CountUnchecked() {
    for (size_t i = 0; i < items_.size(); ++i) {
      if (sampled_[i] && !covered_[i]) ++report_.num_items_unchecked;
    }
  }

  FileSystem& fs_;
  Checkpoint& checkpoint_;
  VerifyOptions& options_;
  VerifyReport report_;
  std::vector<Item> items_;
  std::vector<bool> sampled_;
  std::vector<bool> covered_;  // by a CRC or a digest
  std::vector<CheckedRange> ranges_;
  std::deque<std::vector<ZipRecord>> file_records_;  // of .pt files
  // Of the range being checked.
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
  absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint =
      Checkpoint::Open(fs, path, options.open);
  if (!checkpoint.ok()) {
    return WithSide(checkpoint.status(), ErrorSide::kSource);
  }
  return Verifier(fs, **checkpoint, options).Run();
}

}  // namespace dcp
