// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/index/metadata_objects.h"

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/file/relative_path.h"
#include "dcp/format/pickle/metadata_modules.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

constexpr absl::string_view kChunk = "ChunkStorageMetadata";
constexpr absl::string_view kKey = "MetadataIndex";
constexpr absl::string_view kInfo = "_StorageInfo";
// More attributes than any object in the index has, with room for future ones.
constexpr size_t kMaxAttributes = 64;

// The token types.
enum Token : uint32_t {
  kSizeToken,
  kChunkToken,
  kKeyToken,
  kInfoToken,
  kPlanToken,  // a part of a save plan, which is dropped
};

bool IsToken(const Value& value, Token type) {
  return value.is(Kind::kToken) && value.token_type() == type;
}

uint64_t Pack(uint32_t high, uint32_t low) {
  return uint64_t{high} << 32 | low;
}
uint32_t High(uint64_t token) { return static_cast<uint32_t>(token >> 32); }
uint32_t Low(uint64_t token) { return static_cast<uint32_t>(token); }

bool HasStateAndIs(const Value& object, absl::string_view module,
                   absl::string_view name) {
  return object.IsCallOf(module, name) && object.state().is(Kind::kDict);
}

// Whether `object` is part of the plans that Megatron-core keeps in the index:
// they repeat, for each rank and chunk, the rest of the index.
bool IsPlan(const Value& object) {
  return HasStateAndIs(object, kPlannerModule, "TensorWriteData") ||
         HasStateAndIs(object, kPlannerModule, "WriteItem") ||
         HasStateAndIs(object, kPlannerModule, "SavePlan") ||
         HasStateAndIs(object, kMegatronModule, "MCoreSavePlan");
}

// The dimensions in torch.Size((2, 3)); none may be negative.
absl::StatusOr<absl::Span<const Value>> SizeItems(const Value& value) {
  if (!value.IsCallOf("torch", "Size") || value.args().items().size() != 1 ||
      !value.args().items()[0].is(Kind::kTuple)) {
    return WrongType("a torch.Size", value);
  }
  const absl::Span<const Value> items = value.args().items()[0].items();
  if (items.size() > kMaxDims) {
    return absl::DataLossError(
        absl::StrCat(items.size(), " dimensions exceed ", kMaxDims));
  }
  for (const Value& item : items) {
    if (!item.is(Kind::kInt) || item.int_value() < 0) {
      return WrongType("a dimension", item);
    }
  }
  return items;
}

absl::StatusOr<uint64_t> ParseCount(const Value& value,
                                    absl::string_view what) {
  if (!value.is(Kind::kInt) || value.int_value() < 0) {
    return WrongType(what, value);
  }
  return static_cast<uint64_t>(value.int_value());
}

absl::Status CheckTransforms(const Value& value) {
  if (value.is_none()) return absl::OkStatus();
  if (!value.is(Kind::kList) && !value.is(Kind::kTuple)) {
    return WrongType("transform_descriptors", value);
  }
  if (value.items().empty()) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("transforms are not supported: ", ToString(value)));
}

}  // namespace

absl::Status WrongType(absl::string_view what, const Value& value) {
  return absl::DataLossError(
      absl::StrCat(what, " has an unexpected value: ", ToString(value, 80)));
}

absl::StatusOr<Attributes> Attributes::FromObject(const Value& object,
                                                  absl::string_view module,
                                                  absl::string_view name) {
  if (!object.IsCallOf(module, name) || !object.state().is(Kind::kDict)) {
    return WrongType(absl::StrCat("a ", name), object);
  }
  const Attributes attributes(object.state().items());
  const absl::Span<const Value> items = attributes.items_;
  if (items.size() > 2 * kMaxAttributes) {
    return absl::DataLossError(absl::StrCat(name, " has ", items.size() / 2,
                                            " attributes, more than ",
                                            kMaxAttributes));
  }
  for (size_t i = 0; i < items.size(); i += 2) {
    if (!items[i].is(Kind::kStr)) {
      return WrongType(absl::StrCat("an attribute name of ", name), items[i]);
    }
    const absl::string_view key = items[i].text();
    if (attributes.FindIndex(key) != i) {
      return absl::DataLossError(
          absl::StrCat(name, " has its attribute ", Short(key), " twice"));
    }
  }
  return attributes;
}

Value Attributes::Get(absl::string_view name) const {
  const size_t i = FindIndex(name);
  return i == items_.size() ? Value() : items_[i + 1];
}

size_t Attributes::FindIndex(absl::string_view name) const {
  size_t i = 0;
  while (i < items_.size() && items_[i].text() != name) i += 2;
  return i;
}

MetadataObjects::MetadataObjects()
    : size_ids_(0, SizeHash{this}, SizeEqual{this}) {}

size_t MetadataObjects::SizeHash::operator()(
    absl::Span<const int64_t> dims) const {
  return absl::HashOf(dims);
}

absl::Span<const int64_t> MetadataObjects::dims(SizeId id) const {
  const Size& size = sizes_[id];
  return absl::MakeConstSpan(dims_).subspan(size.first, size.num_dims);
}

std::optional<Value> MetadataObjects::Replace(const Value& object) {
  if (object.IsCallOf("torch", "Size")) {
    const absl::StatusOr<SizeId> id = ParseSize(object);
    if (id.ok()) return Value::Token(kSizeToken, *id);
  } else if (HasStateAndIs(object, kMetadataModule, kChunk)) {
    const absl::StatusOr<Chunk> chunk = ParseChunk(object);
    if (chunk.ok()) {
      return Value::Token(kChunkToken, Pack(chunk->offsets, chunk->sizes));
    }
  } else if (HasStateAndIs(object, kMetadataModule, kKey)) {
    const absl::StatusOr<Key> key = ParseKey(object);
    if (key.ok()) return Value::Token(kKeyToken, Pack(key->name, key->offset));
  } else if (HasStateAndIs(object, kStorageModule, kInfo) ||
             HasStateAndIs(object, kByteCheckpointModule, kInfo)) {
    const absl::StatusOr<InfoId> info = ParseInfo(object);
    if (info.ok()) return Value::Token(kInfoToken, *info);
  } else if (IsPlan(object)) {
    return Value::Token(kPlanToken, 0);
  }
  return std::nullopt;
}

absl::StatusOr<MetadataObjects::SizeId> MetadataObjects::ReadSize(
    const Value& value) {
  if (IsToken(value, kSizeToken)) return Low(value.token());
  return ParseSize(value);
}

absl::StatusOr<MetadataObjects::Chunk> MetadataObjects::ReadChunk(
    const Value& value) {
  if (!IsToken(value, kChunkToken)) return ParseChunk(value);
  return Chunk{.offsets = High(value.token()), .sizes = Low(value.token())};
}

absl::StatusOr<MetadataObjects::Key> MetadataObjects::ReadKey(
    const Value& value) {
  if (!IsToken(value, kKeyToken)) return ParseKey(value);
  return Key{.name = High(value.token()), .offset = Low(value.token())};
}

absl::StatusOr<MetadataObjects::InfoId> MetadataObjects::ReadInfo(
    const Value& value) {
  if (!IsToken(value, kInfoToken)) return ParseInfo(value);
  return Low(value.token());
}

absl::StatusOr<MetadataObjects::SizeId> MetadataObjects::ParseSize(
    const Value& value) {
  DCP_ASSIGN_OR_RETURN(const absl::Span<const Value> items, SizeItems(value));
  Dims dims;
  for (const Value& item : items) dims.push_back(item.int_value());
  const absl::Span<const int64_t> span = dims;
  if (const auto it = size_ids_.find(span); it != size_ids_.end()) return *it;
  const auto id = static_cast<SizeId>(sizes_.size());
  if (id == kNoSize || dims_.size() > std::numeric_limits<uint32_t>::max()) {
    return absl::ResourceExhaustedError("too many sizes");
  }
  sizes_.push_back({.first = static_cast<uint32_t>(dims_.size()),
                    .num_dims = static_cast<uint32_t>(dims.size())});
  dims_.insert(dims_.end(), dims.begin(), dims.end());
  size_ids_.insert(id);
  return id;
}

absl::StatusOr<MetadataObjects::Chunk> MetadataObjects::ParseChunk(
    const Value& value) {
  DCP_ASSIGN_OR_RETURN(const Attributes chunk,
                       Attributes::FromObject(value, kMetadataModule, kChunk));
  DCP_ASSIGN_OR_RETURN(const SizeId offsets, ReadSize(chunk.Get("offsets")));
  DCP_ASSIGN_OR_RETURN(const SizeId sizes, ReadSize(chunk.Get("sizes")));
  return Chunk{.offsets = offsets, .sizes = sizes};
}

absl::StatusOr<MetadataObjects::Key> MetadataObjects::ParseKey(
    const Value& value) {
  DCP_ASSIGN_OR_RETURN(const Attributes index,
                       Attributes::FromObject(value, kMetadataModule, kKey));
  const Value fqn = index.Get("fqn");
  const Value hint = index.Get("index");
  const Value offset = index.Get("offset");
  if (!fqn.is(Kind::kStr)) return WrongType("a name", fqn);
  if (!hint.is_none() && !hint.is(Kind::kInt)) {
    return WrongType("a chunk index", hint);
  }
  Key key{.name = 0, .offset = kNoSize};
  if (!offset.is_none()) {
    const absl::StatusOr<SizeId> size = ReadSize(offset);
    if (!size.ok()) {
      return Annotate(size.status(), "storage of ", Short(fqn.text()));
    }
    key.offset = *size;
  }
  const auto [it, added] =
      name_ids_.try_emplace(fqn.text(), static_cast<NameId>(names_.size()));
  if (added) names_.push_back(it->first);
  key.name = it->second;
  return key;
}

absl::StatusOr<MetadataObjects::InfoId> MetadataObjects::ParseInfo(
    const Value& value) {
  DCP_ASSIGN_OR_RETURN(
      const Attributes attributes,
      Attributes::FromObject(value,
                             value.IsCallOf(kByteCheckpointModule, kInfo)
                                 ? kByteCheckpointModule
                                 : kStorageModule,
                             kInfo));
  StorageInfo info;
  const Value path = attributes.Get("relative_path");
  if (!path.is(Kind::kStr)) return WrongType("relative_path", path);
  DCP_ASSIGN_OR_RETURN(info.file, FileNumber(path.text()));
  DCP_ASSIGN_OR_RETURN(info.offset,
                       ParseCount(attributes.Get("offset"), "offset"));
  DCP_ASSIGN_OR_RETURN(info.length,
                       ParseCount(attributes.Get("length"), "length"));
  if (info.offset + info.length >
      static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return absl::DataLossError(absl::StrCat("offset ", info.offset,
                                            " and length ", info.length,
                                            " exceed 63 bits"));
  }
  DCP_RETURN_IF_ERROR(CheckTransforms(attributes.Get("transform_descriptors")));
  infos_.push_back(info);
  return static_cast<InfoId>(infos_.size() - 1);
}

absl::StatusOr<uint32_t> MetadataObjects::FileNumber(absl::string_view path) {
  if (const auto it = file_ids_.find(path); it != file_ids_.end()) {
    return it->second;
  }
  if (absl::Status status = CheckRelativePath(path); !status.ok()) {
    return absl::DataLossError(status.message());
  }
  if (files_.size() == kMaxFiles) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxFiles, " files"));
  }
  const auto id = static_cast<uint32_t>(files_.size());
  files_.emplace_back(path);
  file_ids_.emplace(path, id);
  return id;
}

}  // namespace dcp
