// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/torch_archive_layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"

namespace dcp {
namespace {

// The records in PyTorch's order: four at the head, the storages, two at the
// tail.
constexpr size_t kNumHeadRecords = 4;
constexpr size_t kNumTailRecords = 2;
constexpr absl::string_view kFormatVersion = "1";
constexpr absl::string_view kArchiveVersion = "3\n";
constexpr absl::string_view kByteOrder = "little";

// PyTorch hashes names and checksums here and only logs the result. Ours
// depends only on the pickle, because it must be known beforehand.
std::string SerializationId(absl::string_view pickle) {
  const uint64_t first = Xxh3Digest(AsBytes(pickle));
  const uint64_t second = Xxh3Digest(AsBytes(absl::StrCat(first)));
  return absl::StrFormat("%020d%020d", first, second);
}

std::vector<ZipLayout::Record> LayoutRecords(
    absl::string_view name, absl::string_view pickle,
    const std::vector<uint64_t>& storage_bytes) {
  std::vector<ZipLayout::Record> records;
  records.reserve(kNumHeadRecords + storage_bytes.size() + kNumTailRecords);
  const auto add = [&](absl::string_view record, uint64_t size) {
    records.push_back({absl::StrCat(name, "/", record), size});
  };
  add("data.pkl", pickle.size());
  add(".format_version", kFormatVersion.size());
  add(".storage_alignment", absl::StrCat(kStorageAlignment).size());
  add("byteorder", kByteOrder.size());
  for (size_t i = 0; i < storage_bytes.size(); ++i) {
    add(absl::StrCat("data/", i), storage_bytes[i]);
  }
  add("version", kArchiveVersion.size());
  add(".data/serialization_id", SerializationId(pickle).size());
  return records;
}

}  // namespace

std::string TorchArchiveName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash != absl::string_view::npos) path.remove_prefix(slash + 1);
  const absl::string_view name = path.substr(0, path.rfind('.'));
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isascii(static_cast<unsigned char>(c)) &&
           absl::ascii_isprint(static_cast<unsigned char>(c));
  });
  if (name.empty() || name == "." || name == ".." || !plain) return "archive";
  return std::string(name);
}

TorchArchiveLayout::TorchArchiveLayout(absl::string_view name,
                                       std::string pickle,
                                       std::vector<uint64_t> storage_bytes)
    : pickle_(std::move(pickle)),
      num_storages_(storage_bytes.size()),
      storage_bytes_(std::move(storage_bytes)),
      zip_(LayoutRecords(name, pickle_, storage_bytes_), kStorageAlignment) {}

uint64_t TorchArchiveLayout::payload_offset(size_t i) const {
  return zip_.payload_offset(kNumHeadRecords + i);
}

uint64_t TorchArchiveLayout::gap_length(size_t i) const {
  const uint64_t begin =
      i == 0 ? 0 : payload_offset(i - 1) + storage_bytes_[i - 1];
  return (i == num_storages_ ? size() : payload_offset(i)) - begin;
}

std::string TorchArchiveLayout::Gap(size_t i,
                                    absl::Span<const uint32_t> crcs) const {
  const std::string alignment = absl::StrCat(kStorageAlignment);
  const absl::string_view head[kNumHeadRecords] = {pickle_, kFormatVersion,
                                                   alignment, kByteOrder};
  std::string gap;
  uint32_t crc = i == 0 ? 0 : crcs[i - 1];  // for the payload before
  if (i == 0) {
    for (size_t record = 0; record < kNumHeadRecords; ++record) {
      absl::StrAppend(&gap, zip_.InnerGap(record, crc), head[record]);
      crc = ExtendCrc32(0, AsBytes(head[record]));
    }
  }
  if (i < num_storages_) {
    gap += zip_.InnerGap(kNumHeadRecords + i, crc);
    return gap;
  }
  const std::string id = SerializationId(pickle_);
  std::vector<uint32_t> all_crcs;
  all_crcs.reserve(zip_.num_records());
  for (const absl::string_view content : head) {
    all_crcs.push_back(ExtendCrc32(0, AsBytes(content)));
  }
  for (size_t k = 0; k < num_storages_; ++k) all_crcs.push_back(crcs[k]);
  for (const absl::string_view content :
       {kArchiveVersion, absl::string_view(id)}) {
    absl::StrAppend(&gap, zip_.InnerGap(all_crcs.size(), crc), content);
    crc = ExtendCrc32(0, AsBytes(content));
    all_crcs.push_back(crc);
  }
  gap += zip_.Gap(all_crcs.size(), all_crcs);
  return gap;
}

}  // namespace dcp
