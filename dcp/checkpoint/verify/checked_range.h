// SPDX-License-Identifier: Apache-2.0
// CheckedRange: a file stretch with a recorded checksum, and the list of them
// for a .pt file. Any thread.
#ifndef DCP_CHECKPOINT_VERIFY_CHECKED_RANGE_H_
#define DCP_CHECKPOINT_VERIFY_CHECKED_RANGE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"

namespace dcp {

struct CheckedRange {
  uint32_t file;
  uint64_t offset;
  uint64_t length;
  absl::string_view name;  // the entry that owns it
  std::optional<uint32_t> crc;
  std::optional<uint64_t> digest;
};

// Whether a CRC is recorded for the record: 0 means that none is.
inline bool HasCrc(const ZipRecord& record) { return record.crc != 0; }

// The record in an archive that begins at byte `start` of `file`.
CheckedRange RecordRange(uint32_t file, uint64_t start, const ZipRecord& record,
                         absl::string_view name);

// The zip records in a .pt file of `checkpoint`, by place. Any read error, or
// DataLoss if it is not a zip.
absl::StatusOr<std::vector<ZipRecord>> ReadTorchFileRecords(
    FileSystem& fs, Checkpoint& checkpoint, uint32_t file);

// An object in a .pt file, or a chunk of a tensor.
struct TorchFileItem {
  uint32_t entry = 0;  // in the checkpoint
  uint32_t chunk = 0;  // for a tensor only
  bool sampled = false;
};

// The parts of a .pt file that are checked.
struct TorchFileRanges {
  std::vector<CheckedRange> ranges;
  std::vector<bool> covered;  // for each item in the file: it has checksums
};

// In a .pt file, objects are in data.pkl, and tensors anywhere in their
// storage's record, which they may share. All records are checked except those
// that only tensors outside the sample use. `items` are all items in the file.
// The ranges point to names in the entries and in `records`.
TorchFileRanges TorchFileRecordRanges(const Checkpoint& checkpoint,
                                      uint32_t file,
                                      const std::vector<ZipRecord>& records,
                                      absl::Span<const TorchFileItem> items);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_VERIFY_CHECKED_RANGE_H_
