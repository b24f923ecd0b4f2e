// SPDX-License-Identifier: Apache-2.0
// Reads the directory of a stored (uncompressed) zip or zip64 archive, as
// written by torch.save, or by Python's zipfile with ZIP_STORED. The central
// directory is authoritative and local headers must agree with it; duplicate
// names, overlapping records, compression and encryption are refused. Pure; any
// thread.
#ifndef DCP_FORMAT_ZIP_ZIP_READER_H_
#define DCP_FORMAT_ZIP_ZIP_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dcp/format/file/read_at.h"

namespace dcp {

struct ZipRecord {
  std::string name;
  uint64_t payload_offset;  // from the archive's start
  uint64_t size;            // payload bytes
  uint32_t crc;             // the payload's CRC-32; 0 when not recorded
};

// The records in the central directory's order. `length` is the archive's
// length. Reads the tail first, then the directory, then every local header.
absl::StatusOr<std::vector<ZipRecord>> ReadZip(uint64_t length, ReadAt read);

}  // namespace dcp

#endif  // DCP_FORMAT_ZIP_ZIP_READER_H_
