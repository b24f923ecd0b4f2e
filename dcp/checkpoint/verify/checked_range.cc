// SPDX-License-Identifier: Apache-2.0
// Lists the stretches with checksums in .pt files.
// Tested by tests/dcp/checkpoint/verify/verify_test.cc.
#include "dcp/checkpoint/verify/checked_range.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/format/torch/torch_archive_reader.h"

namespace dcp {
namespace {

// The record, in a list sorted by place, that holds byte `offset`.
std::optional<size_t> RecordAt(const std::vector<ZipRecord>& records,
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

// How the entries in a .pt file use the file's records.
class RecordUses {
 public:
  explicit RecordUses(const std::vector<ZipRecord>& records)
      : records_(records), uses_(records.size()) {
    for (const ZipRecord& record : records) names_.push_back(record.name);
  }

  // Notes that the entry `name` uses the storage for a chunk of `tensor`;
  // returns whether the storage has a CRC.
  bool Add(const TensorEntry& tensor, size_t chunk, absl::string_view name,
           bool sampled) {
    if (Volume(tensor.boxes[chunk].sizes) == 0) return true;
    const std::optional<size_t> i =
        RecordAt(records_, tensor.locations[chunk].payload_offset);
    if (!i.has_value()) return false;
    if (uses_[*i] != Use::kSampled) {
      uses_[*i] = sampled ? Use::kSampled : Use::kUnsampled;
      names_[*i] = name;
    }
    return HasCrc(records_[*i]);
  }

  // All but those that only tensors outside the sample use.
  std::vector<CheckedRange> Ranges(uint32_t file) const {
    std::vector<CheckedRange> ranges;
    for (size_t i = 0; i < records_.size(); ++i) {
      if (uses_[i] == Use::kUnsampled) continue;
      if (records_[i].size == 0 || !HasCrc(records_[i])) continue;
      ranges.push_back(RecordRange(file, 0, records_[i], names_[i]));
    }
    return ranges;
  }

 private:
  enum class Use : uint8_t { kNone, kUnsampled, kSampled };

  const std::vector<ZipRecord>& records_;
  std::vector<Use> uses_;
  std::vector<absl::string_view> names_;
};

}  // namespace

CheckedRange RecordRange(uint32_t file, uint64_t start, const ZipRecord& record,
                         absl::string_view name) {
  return {.file = file,
          .offset = start + record.payload_offset,
          .length = record.size,
          .name = name,
          .crc = record.crc,
          .digest = std::nullopt};
}

absl::StatusOr<std::vector<ZipRecord>> ReadTorchFileRecords(
    FileSystem& fs, Checkpoint& checkpoint, uint32_t file) {
  DCP_ASSIGN_OR_RETURN(const File opened, checkpoint.files().Get(file));
  FileReader reader(fs, opened, 0, opened.size);
  DCP_ASSIGN_OR_RETURN(
      TorchArchive archive,
      ReadTorchArchive(opened.size, /*allow_legacy=*/true, reader.read_at()));
  std::vector<ZipRecord> records = std::move(archive.records);
  std::sort(records.begin(), records.end(),
            [](const ZipRecord& a, const ZipRecord& b) {
              return a.payload_offset < b.payload_offset;
            });
  return records;
}

TorchFileRanges TorchFileRecordRanges(const Checkpoint& checkpoint,
                                      uint32_t file,
                                      const std::vector<ZipRecord>& records,
                                      absl::Span<const TorchFileItem> items) {
  bool pickle_has_crc = false;
  for (const ZipRecord& record : records) {
    if (absl::EndsWith(record.name, "/data.pkl")) {
      pickle_has_crc = HasCrc(record);
    }
  }
  RecordUses uses(records);
  TorchFileRanges found;
  for (const TorchFileItem& item : items) {
    const CheckpointEntry& entry = checkpoint.entries()[item.entry];
    if (entry.tensor() != nullptr) {
      found.covered.push_back(
          uses.Add(*entry.tensor(), item.chunk, entry.fqn, item.sampled));
      continue;
    }
    bool covered = pickle_has_crc;
    for (const auto& [identity, tensor] : entry.object()->tensors) {
      if (!uses.Add(tensor, 0, entry.fqn, item.sampled)) covered = false;
    }
    found.covered.push_back(covered);
  }
  found.ranges = uses.Ranges(file);
  return found;
}

}  // namespace dcp
