// SPDX-License-Identifier: Apache-2.0
// Builds zip archives in which a test can corrupt every field; fields that are
// not overridden are valid. For tests only.
#ifndef TESTS_DCP_FORMAT_ZIP_BUILDER_H_
#define TESTS_DCP_FORMAT_ZIP_BUILDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"

namespace dcp::testing {

struct ZipFile {
  struct Record {
    std::string name;
    std::string data;
    uint16_t flags = 0x0800;
    uint16_t method = 0;
    std::optional<uint32_t> crc = std::nullopt;        // in the directory
    std::optional<uint32_t> local_crc = std::nullopt;  // in the local header
    std::optional<uint32_t> size = std::nullopt;       // in the directory
    std::optional<uint32_t> local_size = std::nullopt;
    std::optional<uint32_t> offset = std::nullopt;
    std::optional<std::string> local_name = std::nullopt;
    std::string extra = {};
    std::string central_extra = {};
  };

  std::vector<Record> records;
  std::optional<uint16_t> num_records = std::nullopt;
  std::optional<uint32_t> directory_offset = std::nullopt;
  std::optional<uint32_t> directory_length = std::nullopt;
  std::string before_end;  // between the directory and the end record
  std::string comment;
  std::optional<uint16_t> comment_length = std::nullopt;
  bool has_end = true;
};

template <typename T>
std::string Little(uint64_t value) {
  const T narrow = static_cast<T>(value);
  return std::string(reinterpret_cast<const char*>(&narrow), sizeof(T));
}
inline std::string Le16(uint64_t value) { return Little<uint16_t>(value); }
inline std::string Le32(uint64_t value) { return Little<uint32_t>(value); }
inline std::string Le64(uint64_t value) { return Little<uint64_t>(value); }

inline std::string LocalHeader(const ZipFile::Record& r) {
  const uint32_t crc = ExtendCrc32(0, AsBytes(r.data));
  const std::string name = r.local_name.value_or(r.name);
  const std::string size =
      Le32(r.local_size.value_or(static_cast<uint32_t>(r.data.size())));
  return absl::StrCat(absl::string_view("PK\x03\x04", 4), Le16(0),
                      Le16(r.flags), Le16(r.method), Le32(0),
                      Le32(r.local_crc.value_or(crc)), size, size,
                      Le16(name.size()), Le16(r.extra.size()), name, r.extra);
}

inline std::string DirectoryEntry(const ZipFile::Record& r, uint64_t offset) {
  const uint32_t crc = ExtendCrc32(0, AsBytes(r.data));
  const std::string size =
      Le32(r.size.value_or(static_cast<uint32_t>(r.data.size())));
  return absl::StrCat(
      absl::string_view("PK\x01\x02", 4), Le32(0), Le16(r.flags),
      Le16(r.method), Le32(0), Le32(r.crc.value_or(crc)), size, size,
      Le16(r.name.size()), Le16(r.central_extra.size()), std::string(10, '\0'),
      Le32(r.offset.value_or(static_cast<uint32_t>(offset))), r.name,
      r.central_extra);
}

inline std::string BuildZip(const ZipFile& zip) {
  std::string out;
  std::string directory;
  for (const ZipFile::Record& record : zip.records) {
    directory += DirectoryEntry(record, out.size());
    out += LocalHeader(record);
    out += record.data;
  }
  const uint32_t offset = static_cast<uint32_t>(out.size());
  out += directory;
  out += zip.before_end;
  if (!zip.has_end) return out;
  const std::string count =
      Le16(zip.num_records.value_or(static_cast<uint16_t>(zip.records.size())));
  absl::StrAppend(&out, absl::string_view("PK\x05\x06", 4), Le32(0), count,
                  count,
                  Le32(zip.directory_length.value_or(
                      static_cast<uint32_t>(directory.size()))),
                  Le32(zip.directory_offset.value_or(offset)),
                  Le16(zip.comment_length.value_or(
                      static_cast<uint16_t>(zip.comment.size()))),
                  zip.comment);
  return out;
}

// A zip64 end record and the locator, for before_end. The record will begin at
// `at`.
inline std::string Zip64End(uint64_t num_records, uint64_t directory_length,
                            uint64_t directory_offset, uint64_t at) {
  return absl::StrCat(absl::string_view("PK\x06\x06", 4), Le64(44), Le32(0),
                      Le64(0), Le64(num_records), Le64(num_records),
                      Le64(directory_length), Le64(directory_offset),
                      absl::string_view("PK\x06\x07", 4), Le32(0), Le64(at),
                      Le32(1));
}

}  // namespace dcp::testing

#endif  // TESTS_DCP_FORMAT_ZIP_BUILDER_H_
