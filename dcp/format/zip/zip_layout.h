// SPDX-License-Identifier: Apache-2.0
// The bytes of a stored zip archive around payloads that do not exist yet:
// sizes and offsets are known beforehand, checksums once the payloads have been
// written. The format is torch.save's (flag bit 3 and a data descriptor behind
// each payload, "FB" padding that aligns payloads, zip64 fields where sizes
// require them, always a zip64 end record), which allows a payload's CRC to
// become known after it. Pure; any thread.
#ifndef DCP_FORMAT_ZIP_ZIP_LAYOUT_H_
#define DCP_FORMAT_ZIP_ZIP_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace dcp {

class ZipLayout {
 public:
  struct Record {
    std::string name;  // including the first directory
    uint64_t size;     // payload bytes
  };

  // Payloads begin at multiples of `alignment` (a power of two, at most 4096)
  // from the archive's start.
  ZipLayout(std::vector<Record> records, uint64_t alignment);

  uint64_t size() const { return size_; }  // the whole archive's bytes
  uint64_t num_records() const { return records_.size(); }
  uint64_t payload_offset(size_t record) const;

  // The archive is gap 0, payload 0, gap 1, payload 1, ..., gap n: gap i holds
  // the bytes between payload i-1 and payload i; the last gap ends with the
  // central directory.
  uint64_t gap_length(size_t i) const;
  // `crcs` holds the CRC-32 for payloads 0 to i-1, and may hold more.
  std::string Gap(size_t i, absl::Span<const uint32_t> crcs) const;
  // Gap(i) for an i below n, which needs only payload i-1's CRC; gap 0 ignores
  // it.
  std::string InnerGap(size_t i, uint32_t previous_crc) const;

 private:
  std::string LocalHeader(size_t record) const;
  std::string Descriptor(size_t record, uint32_t crc) const;
  // The directory and the end records.
  std::string Directory(absl::Span<const uint32_t> crcs) const;

  std::vector<Record> records_;
  std::vector<uint64_t> header_offsets_;
  std::vector<uint64_t> payload_offsets_;
  uint64_t directory_offset_ = 0;
  uint64_t size_ = 0;
};

}  // namespace dcp

#endif  // DCP_FORMAT_ZIP_ZIP_LAYOUT_H_
