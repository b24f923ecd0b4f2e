// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/legacy_archive.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "dcp/tensor/dtype.h"

namespace dcp {
namespace {

// The start of a file that torch.save wrote in the old format: the integer
// 0x1950a86a20f9469cfc6c, in little-endian order.
constexpr absl::string_view kLegacyMagic(
    "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr int64_t kLegacyProtocol = 1001;
constexpr uint64_t kLegacyFirstBytes = uint64_t{1} << 20;
constexpr uint64_t kLegacyGrowth = 8;

bool AllowNoGlobal(absl::string_view, absl::string_view) { return false; }

using ElementSizes = absl::flat_hash_map<absl::string_view, uint64_t>;

// The element size, in bytes, of the storage class that a persistent id names.
std::optional<uint64_t> StorageElementSize(const Value& type) {
  if (!type.is(Value::Kind::kGlobal)) return std::nullopt;
  if (type.IsGlobal("torch.storage", "UntypedStorage")) return 1;
  if (type.module() != "torch" && type.module() != "torch.cuda") {
    return std::nullopt;
  }
  const std::optional<DType> dtype = DTypeFromStorageClassName(type.name());
  if (!dtype.has_value()) return std::nullopt;
  return ElementSize(*dtype);
}

// ("storage", type, key, location, number of elements[, view]).
absl::Status AddPersistent(const Value& id, ElementSizes& sizes) {
  const auto is_str = [](const Value& value) {
    return value.is(Value::Kind::kStr);
  };
  if (id.is(Value::Kind::kTuple) && !id.items().empty() &&
      is_str(id.items()[0]) && id.items()[0].text() == "module") {
    return absl::UnimplementedError(
        "this is a whole pickled module, which requires its code: in Python, "
        "torch.save its state_dict() instead");
  }
  if (!id.is(Value::Kind::kTuple) || id.items().size() < 5 ||
      id.items().size() > 6 || !is_str(id.items()[0]) ||
      id.items()[0].text() != "storage" || !is_str(id.items()[2])) {
    return absl::DataLossError(absl::StrCat(
        "expected the persistent id of a storage, found ", ToString(id)));
  }
  if (id.items().size() == 6 && !id.items()[5].is_none()) {
    return absl::UnimplementedError(
        "a storage that is a view of another (PyTorch before 0.4) is not "
        "supported");
  }
  const std::optional<uint64_t> size = StorageElementSize(id.items()[1]);
  if (!size.has_value()) {
    return absl::UnimplementedError(absl::StrCat(
        "a storage of ", ToString(id.items()[1]), " is not supported"));
  }
  const auto [it, inserted] = sizes.emplace(id.items()[2].text(), *size);
  if (!inserted && it->second != *size) {
    return absl::DataLossError(absl::StrCat(
        "storage ", it->first, " has elements of two different sizes"));
  }
  return absl::OkStatus();
}

// Finds every storage in `value`, which has a bounded depth.
absl::Status CollectStorages(const Value& value, ElementSizes& sizes) {
  switch (value.kind()) {
    case Value::Kind::kPersistent:
      return AddPersistent(value.persistent_id(), sizes);
    case Value::Kind::kCall:
      DCP_RETURN_IF_ERROR(CollectStorages(value.args(), sizes));
      DCP_RETURN_IF_ERROR(CollectStorages(value.state(), sizes));
      for (const Value& element : value.elements()) {
        DCP_RETURN_IF_ERROR(CollectStorages(element, sizes));
      }
      break;
    case Value::Kind::kTuple:
    case Value::Kind::kList:
    case Value::Kind::kDict:
      break;
    default:
      return absl::OkStatus();
  }
  for (const Value& item : value.items()) {
    DCP_RETURN_IF_ERROR(CollectStorages(item, sizes));
  }
  return absl::OkStatus();
}

bool IsLegacyMagic(const Value& value) {
  return value.is(Value::Kind::kBigInt) && value.text() == kLegacyMagic;
}

// The pickle with facts, {"little_endian": bool, ...}: nearly always true.
absl::StatusOr<bool> IsBigEndian(const Value& info) {
  if (!info.is(Value::Kind::kDict)) {
    return absl::DataLossError("the third pickle is not a dict");
  }
  for (size_t i = 0; i + 1 < info.items().size(); i += 2) {
    const Value& key = info.items()[i];
    const Value& value = info.items()[i + 1];
    if (key.is(Value::Kind::kStr) && key.text() == "little_endian" &&
        value.is(Value::Kind::kBool)) {
      return !value.bool_value();
    }
  }
  return false;
}

struct LegacyHead {
  Value keys;
  uint64_t length = 0;  // total for the five pickles
};

// Takes one pickle from the start of `rest`.
absl::StatusOr<PickleResult> TakePickle(const PickleOptions& options,
                                        ValueArena& arena, ByteSpan& rest) {
  DCP_ASSIGN_OR_RETURN(const PickleResult result,
                       ReadPickle(rest, options, arena));
  rest = rest.subspan(result.length);
  return result;
}

// Takes a pickle that holds only plain values.
absl::StatusOr<Value> TakePlain(ValueArena& arena, ByteSpan& rest) {
  DCP_ASSIGN_OR_RETURN(
      const PickleResult result,
      TakePickle({.allow_global = AllowNoGlobal}, arena, rest));
  return result.root;
}

absl::StatusOr<LegacyHead> ReadLegacyHead(ByteSpan bytes,
                                          TorchArchive& archive) {
  ByteSpan rest = bytes;
  ValueArena& arena = archive.arena;
  DCP_ASSIGN_OR_RETURN(const Value magic, TakePlain(arena, rest));
  if (!IsLegacyMagic(magic))
    return absl::DataLossError("the first pickle is not the magic number");
  DCP_ASSIGN_OR_RETURN(const Value protocol, TakePlain(arena, rest));
  if (!protocol.is(Value::Kind::kInt) ||
      protocol.int_value() != kLegacyProtocol) {
    return absl::DataLossError(absl::StrCat(
        "legacy protocol ", ToString(protocol), " is not ", kLegacyProtocol));
  }
  DCP_ASSIGN_OR_RETURN(const Value info, TakePlain(arena, rest));
  DCP_ASSIGN_OR_RETURN(archive.big_endian, IsBigEndian(info));
  DCP_ASSIGN_OR_RETURN(const PickleResult object,
                       TakePickle({.allow_global = IsStateDictGlobal,
                                   .allow_persistent_ids = true,
                                   .keep_unknown_globals = true},
                                  arena, rest));
  archive.root = object.root;
  archive.has_unknown_globals = object.has_unknown_globals;
  LegacyHead head;
  DCP_ASSIGN_OR_RETURN(head.keys, TakePlain(arena, rest));
  head.length = bytes.size() - rest.size();
  return head;
}

// Finds the storages that follow the pickles.
absl::Status ReadLegacyStorages(uint64_t length, const LegacyHead& head,
                                ReadAt read, TorchArchive& archive) {
  if (!head.keys.is(Value::Kind::kList)) {
    return absl::DataLossError(
        "the fifth pickle is not a list of storage keys");
  }
  ElementSizes sizes;
  DCP_RETURN_IF_ERROR(CollectStorages(archive.root, sizes));
  uint64_t at = head.length;
  for (const Value& key : head.keys.items()) {
    const auto it =
        key.is(Value::Kind::kStr) ? sizes.find(key.text()) : sizes.end();
    if (it == sizes.end()) {
      return absl::DataLossError(
          absl::StrCat("storage ", ToString(key), " belongs to no tensor"));
    }
    if (length - at < sizeof(uint64_t)) {
      return absl::DataLossError(
          absl::StrCat("the file ends before storage ", it->first));
    }
    DCP_ASSIGN_OR_RETURN(const ByteSpan word, read(at, sizeof(uint64_t)));
    at += sizeof(uint64_t);
    const uint64_t count = LoadLittleEndian<uint64_t>(word.data());
    const std::optional<uint64_t> bytes = CheckedMul(count, it->second);
    if (!bytes.has_value() || *bytes > length - at) {
      return absl::DataLossError(
          absl::StrCat("storage ", it->first, " of ", count, " elements at ",
                       at, " reaches past the end of the file at ", length));
    }
    const bool inserted =
        archive.storages
            .emplace(it->first, TorchArchive::Storage{.payload_offset = at,
                                                      .size = *bytes})
            .second;
    if (!inserted) {
      return absl::DataLossError(
          absl::StrCat("storage ", it->first, " occurs twice"));
    }
    at += *bytes;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TorchArchive> ReadLegacyArchive(uint64_t length, ReadAt read) {
  // The pickles' lengths are not recorded. If parsing fails because the piece
  // is too short, it succeeds with a longer piece; malformed pickles fail with
  // every piece.
  const uint64_t longest = std::min(length, kMaxMetadataBytes);
  uint64_t piece = std::min(longest, kLegacyFirstBytes);
  while (true) {
    TorchArchive archive;
    archive.legacy = true;
    DCP_ASSIGN_OR_RETURN(const ByteSpan bytes, read(0, piece));
    absl::StatusOr<LegacyHead> head = ReadLegacyHead(bytes, archive);
    if (head.ok()) {
      DCP_RETURN_IF_ERROR(ReadLegacyStorages(length, *head, read, archive));
      return archive;
    }
    if (piece == longest || !absl::IsDataLoss(head.status())) {
      return std::move(head).status();
    }
    piece = std::min(longest, piece * kLegacyGrowth);
  }
}

bool IsLegacyArchive(absl::string_view head) {
  if (!absl::StartsWith(head, "\x80")) return false;
  ValueArena arena;
  const absl::StatusOr<PickleResult> magic =
      ReadPickle(AsBytes(head), {.allow_global = AllowNoGlobal}, arena);
  return magic.ok() && IsLegacyMagic(magic->root);
}

}  // namespace dcp
