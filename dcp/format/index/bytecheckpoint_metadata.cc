// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/index/bytecheckpoint_metadata.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/index/dcp_metadata.h"
#include "dcp/format/index/metadata_objects.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/value/value.h"
#include "dcp/format/value/value_lookup.h"

namespace dcp {
namespace {

using Kind = Value::Kind;
using Chunk = ByteCheckpointMetadata::Chunk;
using FlatSlot = ByteCheckpointMetadata::FlatSlot;
// Each chunk's tensor pickle, by name and offsets.
using Pickles =
    absl::flat_hash_map<std::pair<absl::string_view, Dims>, absl::string_view>;

constexpr absl::string_view kFlat = "_flat_param";

bool IsGlobal(absl::string_view module, absl::string_view name) {
  return IsMetadataGlobal(module, name) ||
         (module == kByteCheckpointModule &&
          (name == "Metadata" || name == "_StorageInfo"));
}

absl::StatusOr<Pickles> ParsePickles(const Value& table,
                                     MetadataObjects& objects) {
  if (!IsMapping(table)) return WrongType("all_tensor_metadata", table);
  Pickles pickles;
  for (size_t i = 0; i < table.items().size(); i += 2) {
    const Value& pickle = table.items()[i + 1];
    if (pickle.is_none()) continue;  // an object
    DCP_ASSIGN_OR_RETURN(const MetadataObjects::Key key,
                         objects.ReadKey(table.items()[i]));
    if (!pickle.is(Kind::kBytes) || key.offset == MetadataObjects::kNoSize) {
      return absl::DataLossError(absl::StrCat("all_tensor_metadata of ",
                                              Short(objects.name(key.name)),
                                              " is ", ToString(pickle, 40)));
    }
    const absl::Span<const int64_t> dims = objects.dims(key.offset);
    pickles[{objects.name(key.name), Dims(dims.begin(), dims.end())}] =
        pickle.text();
  }
  return pickles;
}

absl::StatusOr<Chunk> ParseChunk(absl::string_view pickle,
                                 const TensorStorageMetadata& whole,
                                 const ChunkStorageMetadata& chunk) {
  ValueArena arena;
  DCP_ASSIGN_OR_RETURN(const PickleResult read,
                       ReadPickle(AsBytes(pickle),
                                  {.allow_global = IsStateDictGlobal,
                                   .allow_persistent_ids = true},
                                  arena));
  if (!IsTensor(read.root)) {
    return absl::DataLossError(
        absl::StrCat("its pickle is ", ToString(read.root, 60)));
  }
  DCP_ASSIGN_OR_RETURN(TorchTensor tensor, ParseTensor(read.root));
  if (tensor.dtype != whole.dtype || tensor.sizes != chunk.box.sizes) {
    return absl::DataLossError(absl::StrCat(
        "its pickle is a tensor of ", TorchName(tensor.dtype), " ",
        ShapeToString(tensor.sizes), ", but the index says ",
        TorchName(whole.dtype), " ", ShapeToString(chunk.box.sizes)));
  }
  if (tensor.storage_bytes != chunk.storage.length) {
    return absl::DataLossError(
        absl::StrCat("its pickle has a storage of ", tensor.storage_bytes,
                     " bytes, but the data file has ", chunk.storage.length));
  }
  Chunk result;
  result.offset = tensor.storage_offset * ElementSize(tensor.dtype);
  if (tensor.strides != RowMajorStrides(tensor.sizes)) {
    result.strides = std::move(tensor.strides);
  }
  result.conj = tensor.conj;
  result.neg = tensor.neg;
  return result;
}

absl::StatusOr<std::vector<Chunk>> ParseChunks(const MetadataEntry& entry,
                                               const Pickles& pickles) {
  std::vector<Chunk> chunks;
  const auto* const tensor = std::get_if<TensorStorageMetadata>(&entry.value);
  if (tensor == nullptr) return chunks;
  for (const ChunkStorageMetadata& chunk : tensor->chunks) {
    Chunk& parsed = chunks.emplace_back();
    if (Volume(chunk.box.sizes) == 0) continue;
    const auto found = pickles.find({entry.fqn, chunk.box.offsets});
    const std::string where =
        absl::StrCat("chunk at ", ShapeToString(chunk.box.offsets));
    if (found == pickles.end()) {
      return absl::DataLossError(
          absl::StrCat(where, ": all_tensor_metadata has no entry for it"));
    }
    absl::StatusOr<Chunk> made = ParseChunk(found->second, *tensor, chunk);
    if (!made.ok()) return Annotate(made.status(), where);
    parsed = *std::move(made);
  }
  return chunks;
}

// A parameter's name: `prefix` and `fqn`. Old versions repeat the prefix's end
// in `fqn`.
std::string JoinNames(absl::string_view prefix, absl::string_view fqn) {
  for (size_t n = std::min(prefix.size(), fqn.size()); n > 0; --n) {
    if (absl::StartsWith(fqn, prefix.substr(prefix.size() - n))) {
      return absl::StrCat(prefix, fqn.substr(n));
    }
  }
  return absl::StrCat(prefix, fqn);
}

// The values under `key` in one table of the layout, a list or a tuple.
absl::StatusOr<absl::Span<const Value>> TableItems(const Value& layout,
                                                   absl::string_view table,
                                                   absl::string_view key) {
  const std::optional<Value> found = FindKey(layout, table);
  const std::optional<Value> row =
      found.has_value() ? FindKey(*found, key) : std::nullopt;
  if (!row.has_value() || (!row->is(Kind::kList) && !row->is(Kind::kTuple))) {
    return absl::DataLossError(
        absl::StrCat(table, " has no list for ", Short(key)));
  }
  return row->items();
}

absl::StatusOr<std::vector<FlatSlot>> ParseSlots(const Value& layout,
                                                 absl::string_view key,
                                                 MetadataObjects& objects) {
  DCP_ASSIGN_OR_RETURN(const absl::Span<const Value> names,
                       TableItems(layout, "fsdp_flat_param_to_fqns", key));
  DCP_ASSIGN_OR_RETURN(const absl::Span<const Value> mask,
                       TableItems(layout, "fsdp_is_padding_mask", key));
  DCP_ASSIGN_OR_RETURN(const absl::Span<const Value> numels,
                       TableItems(layout, "fsdp_numels_with_padding", key));
  DCP_ASSIGN_OR_RETURN(const absl::Span<const Value> shapes,
                       TableItems(layout, "fsdp_shapes", key));
  const std::string prefix = absl::StrReplaceAll(key, {{kFlat, ""}});
  if (mask.size() != numels.size() || names.size() != shapes.size()) {
    return absl::DataLossError(absl::StrCat(
        "there are ", mask.size(), " padding masks for ", numels.size(),
        " sizes, and ", names.size(), " names for ", shapes.size(), " shapes"));
  }
  std::vector<FlatSlot> slots;
  size_t next = 0;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (!mask[i].is(Kind::kBool) || !numels[i].is(Kind::kInt) ||
        numels[i].int_value() < 0) {
      return WrongType("a size", numels[i]);
    }
    FlatSlot& slot = slots.emplace_back();
    slot.numel = numels[i].int_value();
    if (mask[i].bool_value()) continue;
    if (next == names.size() || !names[next].is(Kind::kStr)) {
      return absl::DataLossError(
          absl::StrCat("parameter ", next, " has no name"));
    }
    slot.name = JoinNames(prefix, names[next].text());
    DCP_ASSIGN_OR_RETURN(const MetadataObjects::SizeId size,
                         objects.ReadSize(shapes[next]));
    const absl::Span<const int64_t> dims = objects.dims(size);
    slot.shape.assign(dims.begin(), dims.end());
    if (CheckedVolume(slot.shape) != slot.numel) {
      return absl::DataLossError(absl::StrCat(
          Short(slot.name), " has ", slot.numel, " elements, but its shape is ",
          ShapeToString(slot.shape)));
    }
    ++next;
  }
  if (next == names.size()) return slots;
  return absl::DataLossError(absl::StrCat(names.size(), " names, but ", next,
                                          " sizes that are not padding"));
}

// Adds one model's layout. The entries there begin with `prefix`.
absl::Status ParseLayout(const Value& layout, const std::string& prefix,
                         MetadataObjects& objects,
                         ByteCheckpointMetadata& result) {
  const std::optional<Value> names = FindKey(layout, "fsdp_flat_param_to_fqns");
  if (!names.has_value()) return absl::OkStatus();
  if (!IsMapping(*names)) return WrongType("fsdp_flat_param_to_fqns", *names);
  for (size_t i = 0; i < names->items().size(); i += 2) {
    const Value& key = names->items()[i];
    if (!key.is(Kind::kStr)) return WrongType("a flat parameter's name", key);
    absl::StatusOr<std::vector<FlatSlot>> slots =
        ParseSlots(layout, key.text(), objects);
    if (!slots.ok()) {
      return Annotate(slots.status(), "layout of ", Short(key.text()));
    }
    for (FlatSlot& slot : *slots) {
      if (!slot.name.empty()) slot.name = absl::StrCat(prefix, slot.name);
    }
    result.flat[absl::StrCat(prefix, key.text())] = *std::move(slots);
  }
  return absl::OkStatus();
}

absl::Status ParseLayouts(const Value& user, MetadataObjects& objects,
                          ByteCheckpointMetadata& result) {
  const std::optional<Value> models = FindKey(user, "model_dict_keys");
  if (!models.has_value()) return ParseLayout(user, "", objects, result);
  if (!models->is(Kind::kList) && !models->is(Kind::kTuple)) {
    return WrongType("model_dict_keys", *models);
  }
  for (const Value& model : models->items()) {
    if (!model.is(Kind::kStr)) return WrongType("a model's key", model);
    const std::optional<Value> layout = FindKey(user, model.text());
    if (!layout.has_value()) continue;
    DCP_RETURN_IF_ERROR(
        ParseLayout(*layout, absl::StrCat(model.text(), "."), objects, result));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsByteCheckpointMetadata(absl::string_view head) {
  return absl::StrContains(head, kByteCheckpointModule);
}

absl::StatusOr<ByteCheckpointMetadata> ParseByteCheckpointMetadata(
    ByteSpan bytes) {
  if (bytes.size() > kMaxMetadataBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        ".metadata of ", bytes.size(), " bytes exceeds ", kMaxMetadataBytes));
  }
  MetadataObjects objects;
  const auto replace = [&objects](const Value& object) {
    return objects.Replace(object);
  };
  ValueArena arena;
  DCP_ASSIGN_OR_RETURN(
      const PickleResult pickle,
      ReadPickle(bytes, {.allow_global = IsGlobal, .replace = replace}, arena));
  DCP_ASSIGN_OR_RETURN(
      const Attributes attributes,
      Attributes::FromObject(pickle.root, kByteCheckpointModule, "Metadata"));
  ByteCheckpointMetadata result;
  DCP_ASSIGN_OR_RETURN(result.metadata, ParseDcpMetadata(attributes, objects));
  const Value version = attributes.Get("bytecheckpoint_version");
  if (version.is(Kind::kStr)) {
    result.metadata.version = std::string(version.text());
  }
  DCP_ASSIGN_OR_RETURN(
      const Pickles pickles,
      ParsePickles(attributes.Get("all_tensor_metadata"), objects));
  for (const MetadataEntry& entry : result.metadata.entries) {
    absl::StatusOr<std::vector<Chunk>> chunks = ParseChunks(entry, pickles);
    if (!chunks.ok()) return Annotate(chunks.status(), Short(entry.fqn));
    result.chunks.push_back(*std::move(chunks));
  }
  DCP_RETURN_IF_ERROR(
      ParseLayouts(attributes.Get("user_defined_dict"), objects, result));
  return result;
}

}  // namespace dcp
