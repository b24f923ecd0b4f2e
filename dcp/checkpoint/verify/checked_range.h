// SPDX-License-Identifier: Apache-2.0
// CheckedRange: a stretch of a file with a recorded checksum, and which of them
// a .pt file has. Any thread.
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
  absl::string_view name;  // the entry that it belongs to
  std::optional<uint32_t> crc;
  std::optional<uint64_t> digest;
};

// Whether a CRC is recorded for the record: 0 means that none is.
inline bool HasCrc(const ZipRecord& record) { return record.crc != 0; }

// The record of an archive that begins at byte `start` of `file`.
CheckedRange RangeOf(uint32_t file, uint64_t start, const ZipRecord& record,
                     absl::string_view name);

// The zip records of a .pt file of `checkpoint`, by place. Any error of reading
// it, or DataLoss if it is not a zip.
absl::StatusOr<std::vector<ZipRecord>> RecordsOfTorchFile(
    FileSystem& fs, Checkpoint& checkpoint, uint32_t file);

// An object in a .pt file, or a chunk of a tensor.
struct TorchFileItem {
  uint32_t entry = 0;  // of the checkpoint
  uint32_t chunk = 0;  // only of a tensor
  bool sampled = false;
};

// What is checked of a .pt file.
struct TorchFileRanges {
  std::vector<CheckedRange> ranges;
  std::vector<bool> covered;  // for each of its items: it has checksums
};

// In a .pt file, objects are in data.pkl, and tensors anywhere in the record of
// their storage, which they may share. All records are checked except those
// that only tensors outside the sample use. `items` are all that the file has.
// The ranges point to names of the entries and of `records`.
TorchFileRanges RangesOfTorchFile(const Checkpoint& checkpoint, uint32_t file,
                                  const std::vector<ZipRecord>& records,
                                  absl::Span<const TorchFileItem> items);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_VERIFY_CHECKED_RANGE_H_
