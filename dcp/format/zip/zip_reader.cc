// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/zip/zip_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/zip/zip_fields.h"

// The order of reading:
// 1. the last 4 KiB, for the end record; more only when a comment hides it;
// 2. the zip64 end record, when its locator stands before the end record;
// 3. the central directory, from the bytes of step 1 where they hold it;
// 4. every local header, because only it says where a payload begins.
// Then records are sorted by place and compared with their neighbours.

namespace dcp {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kZip64EndSignature = 0x06064b50;
constexpr uint32_t kZip64LocatorSignature = 0x07064b50;

constexpr uint64_t kFirstTailBytes = 4096;
// Read together with every local header: longer extra fields are rare.
constexpr uint64_t kLikelyExtraBytes = 256;

constexpr uint16_t kZip64Tag = 0x0001;

constexpr uint16_t kFlagEncrypted = 1u << 0;
constexpr uint16_t kFlagPatch = 1u << 5;
constexpr uint16_t kFlagStrongEncryption = 1u << 6;
constexpr uint16_t kFlagMasked = 1u << 13;

uint16_t U16(ByteSpan bytes, size_t at) {
  return LoadLittleEndian<uint16_t>(bytes.data() + at);
}
uint32_t U32(ByteSpan bytes, size_t at) {
  return LoadLittleEndian<uint32_t>(bytes.data() + at);
}
uint64_t U64(ByteSpan bytes, size_t at) {
  return LoadLittleEndian<uint64_t>(bytes.data() + at);
}

// The bytes from `offset` to the archive's end.
struct Tail {
  uint64_t offset = 0;
  std::vector<uint8_t> bytes;
};

// Where the directory lies, and how many entries it has.
struct Directory {
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t num_entries = 0;
};

// A directory entry, joined with the local header's position.
struct Entry {
  ZipRecord record;
  uint64_t header_offset = 0;
  uint16_t flags = 0;
};

absl::StatusOr<Tail> ReadTail(uint64_t length, uint64_t wanted, ReadAt read) {
  Tail tail;
  const uint64_t size = std::min(length, wanted);
  tail.offset = length - size;
  DCP_ASSIGN_OR_RETURN(const ByteSpan bytes, read(tail.offset, size));
  tail.bytes.assign(bytes.begin(), bytes.end());
  return tail;
}

// The position in `tail` of the end record: the one with a comment that ends
// the archive.
std::optional<size_t> FindEnd(ByteSpan tail) {
  if (tail.size() < kZipEndBytes) return std::nullopt;
  for (size_t at = tail.size() - kZipEndBytes + 1; at-- > 0;) {
    if (U32(tail, at) == kEndSignature &&
        at + kZipEndBytes + U16(tail, at + 20) == tail.size()) {
      return at;
    }
  }
  return std::nullopt;
}

// `length` bytes at `offset`, from `tail` if it holds them.
absl::StatusOr<ByteSpan> ReadRange(uint64_t offset, uint64_t length,
                                   const Tail& tail, ReadAt read) {
  if (offset >= tail.offset &&
      length <= tail.bytes.size() - (offset - tail.offset)) {
    return ByteSpan(tail.bytes).subspan(offset - tail.offset, length);
  }
  return read(offset, length);
}

// Checks that a field in the end record agrees with the zip64 record.
absl::Status CheckTwin(absl::string_view what, uint64_t narrow,
                       uint64_t saturated, uint64_t wide) {
  if (narrow == saturated || narrow == wide) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("zip end records disagree on ", what,
                                          ": ", narrow, " and ", wide));
}

absl::StatusOr<Directory> ReadZip64End(uint64_t at, const Directory& narrow,
                                       const Tail& tail, ReadAt read) {
  DCP_ASSIGN_OR_RETURN(const ByteSpan bytes,
                       ReadRange(at, kZip64EndBytes, tail, read));
  if (U32(bytes, 0) != kZip64EndSignature || U64(bytes, 4) < 44) {
    return absl::DataLossError(
        absl::StrCat("no zip64 end record at offset ", at));
  }
  if (U32(bytes, 16) != 0 || U32(bytes, 20) != 0 ||
      U64(bytes, 24) != U64(bytes, 32)) {
    return absl::UnimplementedError("zip archive spans several disks");
  }
  Directory wide{.offset = U64(bytes, 48),
                 .length = U64(bytes, 40),
                 .num_entries = U64(bytes, 32)};
  DCP_RETURN_IF_ERROR(CheckTwin("the number of records", narrow.num_entries,
                                kZipSaturated16, wide.num_entries));
  DCP_RETURN_IF_ERROR(CheckTwin("the directory's length", narrow.length,
                                kZipSaturated32, wide.length));
  DCP_RETURN_IF_ERROR(CheckTwin("the directory's offset", narrow.offset,
                                kZipSaturated32, wide.offset));
  return wide;
}

// `limit` is where the first of the end records begins.
absl::Status CheckDirectory(const Directory& directory, uint64_t limit) {
  const std::optional<uint64_t> end =
      CheckedAdd(directory.offset, directory.length);
  if (!end.has_value() || *end > limit) {
    return absl::DataLossError(
        absl::StrCat("zip directory at ", directory.offset, " of ",
                     directory.length, " bytes reaches past offset ", limit));
  }
  if (directory.length > kMaxMetadataBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("zip directory of ", directory.length, " bytes exceeds ",
                     kMaxMetadataBytes));
  }
  if (directory.num_entries > directory.length / kZipCentralBytes) {
    return absl::DataLossError(
        absl::StrCat("zip directory of ", directory.length,
                     " bytes cannot hold ", directory.num_entries, " records"));
  }
  if (directory.num_entries > kMaxZipRecords) {
    return absl::ResourceExhaustedError(
        absl::StrCat("zip archive of ", directory.num_entries,
                     " records exceeds ", kMaxZipRecords));
  }
  return absl::OkStatus();
}

absl::StatusOr<Directory> FindDirectory(uint64_t length, const Tail& tail,
                                        size_t end, ReadAt read) {
  const ByteSpan bytes(tail.bytes);
  if (U16(bytes, end + 4) != 0 || U16(bytes, end + 6) != 0 ||
      U16(bytes, end + 8) != U16(bytes, end + 10)) {
    return absl::UnimplementedError("zip archive spans several disks");
  }
  Directory directory{.offset = U32(bytes, end + 16),
                      .length = U32(bytes, end + 12),
                      .num_entries = U16(bytes, end + 10)};
  uint64_t limit = tail.offset + end;
  if (limit >= kZip64LocatorBytes) {
    const uint64_t locator_offset = limit - kZip64LocatorBytes;
    DCP_ASSIGN_OR_RETURN(
        const ByteSpan locator,
        ReadRange(locator_offset, kZip64LocatorBytes, tail, read));
    if (U32(locator, 0) == kZip64LocatorSignature) {
      const uint64_t at = U64(locator, 8);
      if (locator_offset < kZip64EndBytes ||
          at > locator_offset - kZip64EndBytes) {
        return absl::DataLossError(absl::StrCat("zip64 locator points to ", at,
                                                " in an archive of ", length,
                                                " bytes"));
      }
      DCP_ASSIGN_OR_RETURN(directory, ReadZip64End(at, directory, tail, read));
      limit = at;
    }
  }
  DCP_RETURN_IF_ERROR(CheckDirectory(directory, limit));
  return directory;
}

// The zip64 field's data among the extra fields, all of which must be complete;
// empty if there is none. A tail too short for a field is padding.
absl::StatusOr<ByteSpan> FindZip64Field(ByteSpan extra,
                                        absl::string_view name) {
  ByteSpan found;
  while (extra.size() >= 4) {
    const uint16_t tag = U16(extra, 0);
    const size_t size = U16(extra, 2);
    if (size > extra.size() - 4) {
      return absl::DataLossError(
          absl::StrCat("extra field of record ", name, " has ", size,
                       " bytes, but only ", extra.size() - 4, " are left"));
    }
    if (tag == kZip64Tag && found.empty()) found = extra.subspan(4, size);
    extra = extra.subspan(4 + size);
  }
  return found;
}

// If `value` is saturated, replaces it with the field's next 64-bit number. A
// field that ends early leaves it unchanged: without zip64 the number is meant
// literally, and bounds are checked afterwards.
void TakeWide(ByteSpan& field, uint64_t& value) {
  if (value != kZipSaturated32 || field.size() < 8) return;
  value = U64(field, 0);
  field = field.subspan(8);
}

absl::Status CheckName(absl::string_view name) {
  if (name.empty() || name.find('\0') != absl::string_view::npos ||
      name.front() == '/') {
    return absl::DataLossError(
        absl::StrCat("the zip record name \"", name,
                     "\" is empty, absolute or contains a NUL"));
  }
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (part == "..") {
      return absl::DataLossError(absl::StrCat("the zip record name \"", name,
                                              "\" has a component .."));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFlags(absl::string_view name, uint16_t flags,
                        uint16_t method) {
  if ((flags & (kFlagEncrypted | kFlagStrongEncryption | kFlagMasked)) != 0) {
    return absl::UnimplementedError(
        absl::StrCat("zip record ", name, " is encrypted"));
  }
  if (method != 0) {
    // Among the files called .pt, only this kind contains code.
    const bool is_script = absl::StrContains(name, "/code/__torch__");
    return absl::UnimplementedError(absl::StrCat(
        "zip record ", name, " is compressed (method ", method, ")",
        is_script ? ": a TorchScript archive, which holds code: in Python, "
                    "torch.save(torch.jit.load(FILE).state_dict(), NEW_FILE)"
                  : ""));
  }
  if ((flags & kFlagPatch) != 0) {
    return absl::UnimplementedError(absl::StrCat(
        "zip record ", name, " is a patch, which is not supported"));
  }
  return absl::OkStatus();
}

// Takes one entry from the start of `rest`. Payloads must end at `end`.
absl::StatusOr<Entry> TakeEntry(ByteSpan& rest, uint64_t end) {
  if (rest.size() < kZipCentralBytes || U32(rest, 0) != kCentralSignature) {
    return absl::DataLossError("zip directory ends before its last record");
  }
  const size_t name_size = U16(rest, 28);
  const size_t extra_size = U16(rest, 30);
  const size_t comment_size = U16(rest, 32);
  if (name_size + extra_size + comment_size > rest.size() - kZipCentralBytes) {
    return absl::DataLossError(
        "a zip directory entry reaches past the end of the directory");
  }
  Entry entry;
  entry.record.name =
      std::string(AsText(rest.subspan(kZipCentralBytes, name_size)));
  const std::string& name = entry.record.name;
  DCP_RETURN_IF_ERROR(CheckName(name));
  entry.flags = U16(rest, 8);
  DCP_RETURN_IF_ERROR(CheckFlags(name, entry.flags, U16(rest, 10)));
  entry.record.crc = U32(rest, 16);
  uint64_t stored_size = U32(rest, 20);
  entry.record.size = U32(rest, 24);
  entry.header_offset = U32(rest, 42);
  DCP_ASSIGN_OR_RETURN(
      ByteSpan field,
      FindZip64Field(rest.subspan(kZipCentralBytes + name_size, extra_size),
                     name));
  TakeWide(field, entry.record.size);
  TakeWide(field, stored_size);
  TakeWide(field, entry.header_offset);
  if (stored_size != entry.record.size) {
    return absl::DataLossError(
        absl::StrCat("zip record ", name, " is stored but has the sizes ",
                     stored_size, " and ", entry.record.size));
  }
  const std::optional<uint64_t> least =
      CheckedAdd(entry.header_offset, kZipLocalBytes + name_size);
  if (U16(rest, 34) != 0 || !least.has_value() || *least > end ||
      entry.record.size > end - *least) {
    return absl::DataLossError(absl::StrCat(
        "zip record ", name, " of ", entry.record.size, " bytes at ",
        entry.header_offset, " reaches past offset ", end));
  }
  rest = rest.subspan(kZipCentralBytes + name_size + extra_size + comment_size);
  return entry;
}

// A header without a data descriptor repeats the directory's numbers. `field`
// is the header's zip64 field.
absl::Status CheckLocalSizes(const ZipRecord& record, ByteSpan header,
                             ByteSpan field) {
  const uint32_t crc = U32(header, 14);
  uint64_t stored_size = U32(header, 18);
  uint64_t size = U32(header, 22);
  TakeWide(field, size);
  TakeWide(field, stored_size);
  if (size != record.size || stored_size != record.size) {
    return absl::DataLossError(absl::StrCat(
        "zip record ", record.name, " has ", record.size,
        " bytes by the directory and ", size, " by its own header"));
  }
  if (crc != 0 && crc != record.crc) {
    return absl::DataLossError(absl::StrCat(
        "zip record ", record.name,
        " has different CRCs in the directory and in its own header"));
  }
  return absl::OkStatus();
}

// Compares the local header with the entry and finds the payload, which must
// end at or before `end`.
absl::Status ReadLocal(uint64_t end, ReadAt read, Entry& entry) {
  ZipRecord& record = entry.record;
  const uint64_t fixed_size = kZipLocalBytes + record.name.size();
  const uint64_t read_size =
      std::min(fixed_size + kLikelyExtraBytes, end - entry.header_offset);
  DCP_ASSIGN_OR_RETURN(ByteSpan header, read(entry.header_offset, read_size));
  if (U32(header, 0) != kLocalSignature) {
    return absl::DataLossError(absl::StrCat("no zip record ", record.name,
                                            " at ", entry.header_offset));
  }
  if (U16(header, 26) != record.name.size() ||
      AsText(header.subspan(kZipLocalBytes, record.name.size())) !=
          record.name) {
    return absl::DataLossError(absl::StrCat(
        "zip record ", record.name, " has another name in its own header"));
  }
  const uint16_t flags = U16(header, 6);
  DCP_RETURN_IF_ERROR(CheckFlags(record.name, flags, U16(header, 8)));
  const uint64_t extra_size = U16(header, 28);
  record.payload_offset = entry.header_offset + fixed_size + extra_size;
  if (record.payload_offset > end ||
      record.size > end - record.payload_offset) {
    return absl::DataLossError(
        absl::StrCat("zip record ", record.name, " at ", record.payload_offset,
                     " of ", record.size, " bytes reaches past offset ", end));
  }
  if (fixed_size + extra_size > header.size()) {
    DCP_ASSIGN_OR_RETURN(header,
                         read(entry.header_offset, fixed_size + extra_size));
  }
  DCP_ASSIGN_OR_RETURN(
      const ByteSpan field,
      FindZip64Field(header.subspan(fixed_size, extra_size), record.name));
  if ((flags & kZipFlagDescriptor) != 0) return absl::OkStatus();
  return CheckLocalSizes(record, header, field);
}

// A name that two records have; nullptr if there is none. For an item's few
// records, comparing all pairs is several times as fast as a table.
const std::string* FindDuplicate(absl::Span<const Entry> entries) {
  constexpr size_t kMaxPairwise = 16;
  if (entries.size() <= kMaxPairwise) {
    for (size_t i = 0; i < entries.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        if (entries[i].record.name == entries[k].record.name) {
          return &entries[i].record.name;
        }
      }
    }
    return nullptr;
  }
  absl::flat_hash_set<absl::string_view> names;
  names.reserve(entries.size());
  for (const Entry& entry : entries) {
    if (!names.insert(entry.record.name).second) return &entry.record.name;
  }
  return nullptr;
}

// Checks that no byte and no name belongs to two records.
absl::Status CheckApart(absl::Span<const Entry> entries) {
  if (const std::string* name = FindDuplicate(entries); name != nullptr) {
    return absl::DataLossError(
        absl::StrCat("zip record ", *name, " occurs twice"));
  }
  std::vector<const Entry*> by_place;
  by_place.reserve(entries.size());
  for (const Entry& entry : entries) by_place.push_back(&entry);
  const auto is_before = [](const Entry* a, const Entry* b) {
    return a->header_offset < b->header_offset;
  };
  if (!std::is_sorted(by_place.begin(), by_place.end(), is_before)) {
    std::sort(by_place.begin(), by_place.end(), is_before);
  }
  for (size_t i = 1; i < by_place.size(); ++i) {
    const ZipRecord& record = by_place[i - 1]->record;
    if (record.payload_offset + record.size > by_place[i]->header_offset) {
      return absl::DataLossError(absl::StrCat("zip records ", record.name,
                                              " and ", by_place[i]->record.name,
                                              " overlap"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Entry>> ReadDirectory(const Directory& directory,
                                                 const Tail& tail,
                                                 ReadAt read) {
  DCP_ASSIGN_OR_RETURN(
      ByteSpan rest, ReadRange(directory.offset, directory.length, tail, read));
  std::vector<Entry> entries;
  entries.reserve(directory.num_entries);
  for (uint64_t i = 0; i < directory.num_entries; ++i) {
    DCP_ASSIGN_OR_RETURN(Entry entry, TakeEntry(rest, directory.offset));
    entries.push_back(std::move(entry));
  }
  if (!rest.empty()) {
    return absl::DataLossError(absl::StrCat("zip directory has ", rest.size(),
                                            " bytes after its last record"));
  }
  return entries;
}

}  // namespace

absl::StatusOr<std::vector<ZipRecord>> ReadZip(uint64_t length, ReadAt read) {
  DCP_ASSIGN_OR_RETURN(Tail tail, ReadTail(length, kFirstTailBytes, read));
  std::optional<size_t> end = FindEnd(tail.bytes);
  if (!end.has_value() && length > tail.bytes.size()) {
    DCP_ASSIGN_OR_RETURN(tail, ReadTail(length, kMaxZipTailBytes, read));
    end = FindEnd(tail.bytes);
  }
  if (!end.has_value()) {
    return absl::DataLossError(
        "the zip end record is missing: this is not a zip archive, or it is "
        "cut short");
  }
  DCP_ASSIGN_OR_RETURN(const Directory directory,
                       FindDirectory(length, tail, *end, read));
  DCP_ASSIGN_OR_RETURN(std::vector<Entry> entries,
                       ReadDirectory(directory, tail, read));
  for (Entry& entry : entries) {
    DCP_RETURN_IF_ERROR(ReadLocal(directory.offset, read, entry));
  }
  DCP_RETURN_IF_ERROR(CheckApart(entries));
  std::vector<ZipRecord> records;
  records.reserve(entries.size());
  for (Entry& entry : entries) records.push_back(std::move(entry.record));
  return records;
}

}  // namespace dcp
