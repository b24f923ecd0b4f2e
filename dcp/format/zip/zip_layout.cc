// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/zip/zip_layout.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/format/zip/zip_fields.h"

// The archive, in order:
//
//   local header | name | zip64 field? | "FB" padding | payload | descriptor?
//   ...                                                (once per record)
//   directory entry | name | zip64 field?              (once per record)
//   zip64 end record | zip64 locator | end record
//
// Readers that compute payload offsets instead of reading them repeat this
// arithmetic (PyTorch does, with mmap and with meta tensors), so every field is
// present or absent exactly as in PyTorch.

namespace dcp {
namespace {

constexpr uint64_t kExtraHeaderBytes = 4;
constexpr uint64_t kEndsBytes =
    kZip64EndBytes + kZip64LocatorBytes + kZipEndBytes;
constexpr uint64_t kMaxAlignment = 4096;

// PyTorch switches to 64 bits at this value, not above it.

constexpr uint16_t kFlagUtf8 = 1u << 11;
constexpr uint16_t kMadeBy = 798;  // 3.30 on Unix, PyTorch's own
constexpr uint16_t kNeeded = 45;   // the first version with zip64

template <typename T>
void Put(std::string& out, T value) {
  char bytes[sizeof(T)];
  static_assert(std::endian::native == std::endian::little);
  __builtin_memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void Put16(std::string& out, uint64_t value) {
  Put(out, static_cast<uint16_t>(value));
}
void Put32(std::string& out, uint64_t value) {
  Put(out, static_cast<uint32_t>(value));
}

bool IsWide(uint64_t value) { return value >= kZipSaturated32; }

// The zip64 numbers' size for a record at `header_offset`.
uint64_t WideBytes(uint64_t size, uint64_t header_offset) {
  return (IsWide(size) ? 16u : 0u) + (IsWide(header_offset) ? 8u : 0u);
}

// The zip64 field's size, including the four-byte header; 0 if it is not
// needed.
uint64_t WideFieldBytes(uint64_t size, uint64_t header_offset) {
  const uint64_t bytes = WideBytes(size, header_offset);
  return bytes == 0 ? 0 : kExtraHeaderBytes + bytes;
}

void PutWideField(std::string& out, uint64_t size, uint64_t header_offset) {
  const uint64_t bytes = WideBytes(size, header_offset);
  if (bytes == 0) return;
  Put16(out, 1);
  Put16(out, bytes);
  if (IsWide(size)) {
    Put<uint64_t>(out, size);
    Put<uint64_t>(out, size);
  }
  if (IsWide(header_offset)) Put<uint64_t>(out, header_offset);
}

uint64_t DescriptorBytes(uint64_t size, uint64_t header_offset) {
  if (size == 0) return 0;
  return WideBytes(size, header_offset) == 0 ? 16 : 24;
}

uint64_t Flags(uint64_t size) {
  return size == 0 ? kFlagUtf8 : kFlagUtf8 | kZipFlagDescriptor;
}

}  // namespace

ZipLayout::ZipLayout(std::vector<Record> records, uint64_t alignment)
    : records_(std::move(records)) {
  DCP_CHECK(alignment != 0 && (alignment & (alignment - 1)) == 0 &&
                alignment <= kMaxAlignment,
            "alignment=", alignment);
  header_offsets_.reserve(records_.size());
  payload_offsets_.reserve(records_.size());
  uint64_t at = 0;
  uint64_t directory_bytes = 0;
  for (const Record& record : records_) {
    DCP_CHECK(!record.name.empty() && record.name.size() <= kZipSaturated16,
              "name of ", record.name.size(), " bytes");
    const uint64_t wide_bytes = WideFieldBytes(record.size, at);
    const uint64_t payload_offset =
        AlignUp(at + kZipLocalBytes + record.name.size() + wide_bytes +
                    kExtraHeaderBytes,
                alignment);
    header_offsets_.push_back(at);
    payload_offsets_.push_back(payload_offset);
    directory_bytes += kZipCentralBytes + record.name.size() + wide_bytes;
    at = payload_offset + record.size + DescriptorBytes(record.size, at);
  }
  directory_offset_ = at;
  size_ = at + directory_bytes + kEndsBytes;
}

uint64_t ZipLayout::payload_offset(size_t record) const {
  return payload_offsets_[record];
}

uint64_t ZipLayout::gap_length(size_t i) const {
  const uint64_t begin =
      i == 0 ? 0 : payload_offsets_[i - 1] + records_[i - 1].size;
  return (i == records_.size() ? size_ : payload_offsets_[i]) - begin;
}

std::string ZipLayout::Gap(size_t i, absl::Span<const uint32_t> crcs) const {
  if (i < records_.size()) return InnerGap(i, i == 0 ? 0 : crcs[i - 1]);
  std::string gap = i == 0 ? "" : Descriptor(i - 1, crcs[i - 1]);
  gap += Directory(crcs);
  DCP_CHECK(gap.size() == gap_length(i), "gap ", i);
  return gap;
}

std::string ZipLayout::InnerGap(size_t i, uint32_t previous_crc) const {
  std::string gap = i == 0 ? "" : Descriptor(i - 1, previous_crc);
  gap += LocalHeader(i);
  DCP_CHECK(gap.size() == gap_length(i), "gap ", i);
  return gap;
}

std::string ZipLayout::LocalHeader(size_t record) const {
  const std::string& name = records_[record].name;
  const uint64_t size = records_[record].size;
  const uint64_t offset = header_offsets_[record];
  const uint64_t wide_bytes = WideFieldBytes(size, offset);
  const uint64_t extra_bytes =
      payload_offsets_[record] - offset - kZipLocalBytes - name.size();
  const uint64_t padding = extra_bytes - wide_bytes - kExtraHeaderBytes;
  std::string out;
  out.reserve(kZipLocalBytes + name.size() + extra_bytes);
  out.append("PK\x03\x04", 4);
  Put16(out, 0);  // version needed
  Put16(out, Flags(size));
  Put16(out, 0);  // stored
  Put32(out, 0);  // time and date
  Put32(out, 0);  // the descriptor has the CRC and the sizes
  Put32(out, 0);
  Put32(out, 0);
  Put16(out, name.size());
  Put16(out, extra_bytes);
  out += name;
  PutWideField(out, size, offset);
  out += "FB";
  Put16(out, padding);
  out.append(padding, 'Z');
  return out;
}

std::string ZipLayout::Descriptor(size_t record, uint32_t crc) const {
  const uint64_t size = records_[record].size;
  std::string out;
  if (size == 0) return out;
  out.append("PK\x07\x08", 4);
  Put32(out, crc);
  if (WideBytes(size, header_offsets_[record]) == 0) {
    Put32(out, size);
    Put32(out, size);
  } else {
    Put<uint64_t>(out, size);
    Put<uint64_t>(out, size);
  }
  return out;
}

std::string ZipLayout::Directory(absl::Span<const uint32_t> crcs) const {
  const uint64_t num_records = records_.size();
  const uint64_t directory_bytes = size_ - kEndsBytes - directory_offset_;
  std::string out;
  out.reserve(directory_bytes + kEndsBytes);
  for (size_t i = 0; i < num_records; ++i) {
    const std::string& name = records_[i].name;
    const uint64_t size = records_[i].size;
    const uint64_t offset = header_offsets_[i];
    out.append("PK\x01\x02", 4);
    Put32(out, 0);  // made by, needed
    Put16(out, Flags(size));
    Put16(out, 0);  // stored
    Put32(out, 0);  // time and date
    Put32(out, size == 0 ? 0 : crcs[i]);
    Put32(out, std::min(size, kZipSaturated32));
    Put32(out, std::min(size, kZipSaturated32));
    Put16(out, name.size());
    Put16(out, WideFieldBytes(size, offset));
    Put16(out, 0);  // no comment
    Put16(out, 0);  // disk
    Put16(out, 0);  // attributes
    Put32(out, 0);
    Put32(out, std::min(offset, kZipSaturated32));
    out += name;
    PutWideField(out, size, offset);
  }
  out.append("PK\x06\x06", 4);
  Put<uint64_t>(out, 44);
  Put16(out, kMadeBy);
  Put16(out, kNeeded);
  Put32(out, 0);  // disks
  Put32(out, 0);
  Put<uint64_t>(out, num_records);
  Put<uint64_t>(out, num_records);
  Put<uint64_t>(out, directory_bytes);
  Put<uint64_t>(out, directory_offset_);
  out.append("PK\x06\x07", 4);
  Put32(out, 0);
  Put<uint64_t>(out, directory_offset_ + directory_bytes);
  Put32(out, 1);
  out.append("PK\x05\x06", 4);
  Put32(out, 0);  // disks
  Put16(out, std::min(num_records, kZipSaturated16));
  Put16(out, std::min(num_records, kZipSaturated16));
  Put32(out, std::min(directory_bytes, kZipSaturated32));
  Put32(out, std::min(directory_offset_, kZipSaturated32));
  Put16(out, 0);  // no comment
  return out;
}

}  // namespace dcp
