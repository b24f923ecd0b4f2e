// SPDX-License-Identifier: Apache-2.0
// Reads the records of an archive, checks the version, and parses the pickle.
// Tested by tests/dcp/format/torch/torch_archive_test.cc.
#include "dcp/format/torch/torch_archive_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/file/foreign_file.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "dcp/format/torch/legacy_archive.h"

namespace dcp {
namespace {

constexpr absl::string_view kZipMagic("PK\x03\x04", 4);

// The archive versions that PyTorch reads.
constexpr uint32_t kMinVersion = 1;
constexpr uint32_t kMaxVersion = 10;
// For records that hold a word or a number.
constexpr uint64_t kMaxSmallRecordBytes = 64;

constexpr absl::string_view kPickleRecord = "data.pkl";
constexpr absl::string_view kStoragePrefix = "data/";

// A description, for the message, of a file that is not an archive.
std::string Describe(absl::string_view head) {
  const std::string foreign = ForeignContent(head);
  if (!foreign.empty()) return foreign;
  if (head.size() > 8 && head[8] == '{') return "a safetensors file";
  if (absl::StartsWith(head, "\x80")) return "a bare pickle";
  return "an unknown format";
}

absl::Status NotAnArchive(absl::string_view head) {
  return absl::DataLossError(absl::StrCat(
      "not written by torch.save: it looks like ", Describe(head)));
}

// The record called `name` under `prefix`; nullptr if there is none.
const ZipRecord* Find(const std::vector<ZipRecord>& records,
                      absl::string_view prefix, absl::string_view name) {
  const auto it = std::find_if(
      records.begin(), records.end(), [&](const ZipRecord& record) {
        return record.name.size() == prefix.size() + name.size() &&
               absl::EndsWith(record.name, name) &&
               absl::StartsWith(record.name, prefix);
      });
  return it == records.end() ? nullptr : &*it;
}

absl::StatusOr<ByteSpan> ReadRecord(const ZipRecord& record, ReadAt read,
                                    bool check_crc) {
  DCP_ASSIGN_OR_RETURN(const ByteSpan bytes,
                       read(record.payload_offset, record.size));
  if (!check_crc || record.crc == 0) return bytes;
  const uint32_t crc = ExtendCrc32(0, bytes);
  if (crc == record.crc) return bytes;
  return absl::DataLossError(absl::StrFormat(
      "CRC-32 of %d bytes of record %s is %08x, recorded %08x: the file is "
      "damaged",
      record.size, record.name, crc, record.crc));
}

absl::StatusOr<std::string> ReadSmall(const ZipRecord& record, ReadAt read,
                                      bool check_crc) {
  if (record.size > kMaxSmallRecordBytes) {
    return absl::DataLossError(absl::StrCat("record ", record.name, " of ",
                                            record.size, " bytes exceeds ",
                                            kMaxSmallRecordBytes));
  }
  DCP_ASSIGN_OR_RETURN(const ByteSpan bytes,
                       ReadRecord(record, read, check_crc));
  return std::string(AsText(bytes));
}

absl::Status CheckVersion(const ZipRecord* record, ReadAt read,
                          bool check_crc) {
  if (record == nullptr)
    return absl::DataLossError("the record version is missing");
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       ReadSmall(*record, read, check_crc));
  uint32_t version;
  if (!absl::SimpleAtoi(text, &version) || version < kMinVersion) {
    return absl::DataLossError(absl::StrCat("record version holds \"", text,
                                            "\", not a number of at least ",
                                            kMinVersion));
  }
  if (version > kMaxVersion) {
    return absl::UnimplementedError(absl::StrCat(
        "archive version ", version, " is newer than ", kMaxVersion));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> IsBigEndian(const ZipRecord* record, ReadAt read,
                                 bool check_crc) {
  if (record == nullptr) return false;  // before PyTorch 2.1
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       ReadSmall(*record, read, check_crc));
  if (text == "little") return false;
  if (text == "big") return true;
  return absl::DataLossError(
      absl::StrCat("record byteorder holds \"", text, "\", not little or big"));
}

// All records' first directory, including the slash.
absl::StatusOr<std::string> CommonPrefix(
    const std::vector<ZipRecord>& records) {
  if (records.empty())
    return absl::DataLossError("a zip archive without records");
  const std::string& first = records[0].name;
  const std::string prefix = first.substr(0, first.find('/') + 1);
  if (prefix.empty()) {
    return absl::DataLossError(
        absl::StrCat("record ", first,
                     " is not in a directory: torch.save did not write this"));
  }
  for (const ZipRecord& record : records) {
    if (!absl::StartsWith(record.name, prefix)) {
      return absl::DataLossError(absl::StrCat(
          "record ", record.name, " is outside the directory ", prefix));
    }
  }
  return prefix;
}

absl::Status ReadPickleInto(ByteSpan bytes, TorchArchive& archive) {
  DCP_ASSIGN_OR_RETURN(const PickleResult result,
                       ReadPickle(bytes,
                                  {.allow_global = IsStateDictGlobal,
                                   .allow_persistent_ids = true,
                                   .keep_unknown_globals = true},
                                  archive.arena));
  archive.root = result.root;
  archive.has_unknown_globals = result.has_unknown_globals;
  return absl::OkStatus();
}

absl::StatusOr<TorchArchive> ReadZipArchive(uint64_t length, ReadAt read,
                                            bool check_crcs) {
  TorchArchive archive;
  DCP_ASSIGN_OR_RETURN(archive.records, ReadZip(length, read));
  const std::vector<ZipRecord>& records = archive.records;
  DCP_ASSIGN_OR_RETURN(const std::string prefix, CommonPrefix(records));
  if (Find(records, prefix, "constants.pkl") != nullptr) {
    return absl::UnimplementedError(
        "a TorchScript archive (constants.pkl), which holds code: in Python, "
        "torch.save(torch.jit.load(FILE).state_dict(), NEW_FILE)");
  }
  const ZipRecord* pickle = Find(records, prefix, kPickleRecord);
  if (pickle == nullptr) {
    return absl::DataLossError(
        "the record data.pkl is missing: torch.save did not write this");
  }
  if (pickle->size > kMaxMetadataBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "data.pkl of ", pickle->size, " bytes exceeds ", kMaxMetadataBytes));
  }
  archive.pickle_has_crc = pickle->crc != 0;
  DCP_RETURN_IF_ERROR(
      CheckVersion(Find(records, prefix, "version"), read, check_crcs));
  DCP_ASSIGN_OR_RETURN(
      archive.big_endian,
      IsBigEndian(Find(records, prefix, "byteorder"), read, check_crcs));
  for (const ZipRecord& record : records) {
    absl::string_view key = record.name;
    if (absl::ConsumePrefix(&key, prefix) &&
        absl::ConsumePrefix(&key, kStoragePrefix)) {
      archive.storages.emplace(
          key, TorchArchive::Storage{.payload_offset = record.payload_offset,
                                     .size = record.size,
                                     .crc = record.crc});
    }
  }
  DCP_ASSIGN_OR_RETURN(const ByteSpan bytes,
                       ReadRecord(*pickle, read, check_crcs));
  DCP_RETURN_IF_ERROR(Annotate(ReadPickleInto(bytes, archive), kPickleRecord));
  return archive;
}

}  // namespace

absl::StatusOr<TorchArchive> ReadTorchArchive(uint64_t length,
                                              bool allow_legacy, ReadAt read,
                                              bool check_crcs) {
  DCP_ASSIGN_OR_RETURN(const ByteSpan head,
                       read(0, std::min<uint64_t>(length, kForeignHeadBytes)));
  if (absl::StartsWith(AsText(head), kZipMagic) &&
      ForeignContent(AsText(head)).empty()) {
    return ReadZipArchive(length, read, check_crcs);
  }
  const std::string text(AsText(head));
  if (IsLegacyArchive(text)) {
    if (allow_legacy) return ReadLegacyArchive(length, read);
    return absl::UnimplementedError(
        "this is the torch.save format from before PyTorch 1.6, which an item "
        "of a checkpoint never has");
  }
  if (text.empty()) return absl::DataLossError("the file is empty");
  return NotAnArchive(text);
}

absl::StatusOr<TorchArchive> ReadBarePickle(uint64_t length, ReadAt read) {
  if (length > kMaxMetadataBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a pickle of ", length, " bytes exceeds ", kMaxMetadataBytes));
  }
  DCP_ASSIGN_OR_RETURN(const ByteSpan bytes, read(0, length));
  TorchArchive archive;
  archive.legacy = true;
  DCP_RETURN_IF_ERROR(ReadPickleInto(bytes, archive));
  return archive;
}

}  // namespace dcp
