// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/torchsnapshot/snapshot_manifest.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/torchsnapshot/stored_fields.h"
#include "dcp/format/file/relative_path.h"
#include "dcp/format/json/json.h"
#include "dcp/format/json/json_fields.h"

namespace dcp {
namespace {

using Event = JsonEvent::Kind;
using EntryKind = SnapshotEntry::Kind;

// The most keys in a path; each prefix of a path is looked up.
constexpr size_t kMaxKeys = 100;

absl::Status Bad(absl::string_view what) { return absl::DataLossError(what); }

// A path's key before the characters / and % were replaced.
absl::StatusOr<std::string> DecodeKey(absl::string_view key) {
  std::string decoded;
  for (size_t i = 0; i < key.size(); ++i) {
    if (key[i] != '%') {
      decoded += key[i];
      continue;
    }
    const absl::string_view code = key.substr(i + 1, 2);
    const bool is_hex = code.size() == 2 && absl::ascii_isxdigit(code[0]) &&
                        absl::ascii_isxdigit(code[1]);
    int value = 0;
    if (!is_hex || !absl::SimpleHexAtoi(code, &value) || value < 0x20 ||
        value > 0x7e) {
      return Bad(
          absl::StrCat("expected %25 or %2F, found '%", ShortJson(code), "'"));
    }
    decoded += static_cast<char>(value);
    i += 2;
  }
  return decoded;
}

// A shard or a chunk.
struct PieceFields {
  std::string field;
  std::string tensor_field;
  JsonNumbers<Dims, kMaxDims> offsets;
  JsonNumbers<Dims, kMaxDims> sizes;
  bool has_tensor = false;
  StoredFields tensor;
};

// An entry in the manifest.
struct EntryFields {
  std::string path;
  std::string field;
  std::string type;
  std::string serialized_value;
  bool has_value = false;
  bool is_replicated = false;
  StoredFields stored;
  std::vector<SnapshotPiece> pieces;
};

std::optional<EntryKind> ParseEntryKind(absl::string_view type) {
  constexpr std::pair<absl::string_view, EntryKind> kKinds[] = {
      {"Tensor", EntryKind::kTensor},
      {"ChunkedTensor", EntryKind::kChunked},
      {"ShardedTensor", EntryKind::kSharded},
      {"DTensor", EntryKind::kSharded},
      {"object", EntryKind::kObject},
      {"int", EntryKind::kInt},
      {"str", EntryKind::kStr},
      {"bool", EntryKind::kBool},
      {"bytes", EntryKind::kBytes},
      {"float", EntryKind::kFloat},
  };
  for (const auto& [name, kind] : kKinds) {
    if (name == type) return kind;
  }
  return std::nullopt;
}

// The depths in a manifest; the contents in an entry's field, or in a piece's
// tensor, are deeper.
constexpr uint32_t kTopFields = 1;
constexpr uint32_t kEntries = 2;
constexpr uint32_t kEntryFields = 3;
constexpr uint32_t kPieces = 4;
constexpr uint32_t kPieceFields = 5;

class ManifestParser {
 public:
  absl::Status Handle(const JsonEvent& event) {
    if (event.depth == 0) {
      return event.kind == Event::kBeginObject ||
                     event.kind == Event::kEndObject
                 ? absl::OkStatus()
                 : MisplacedJson("the manifest");
    }
    if (event.depth == kTopFields) return HandleTop(event);
    if (top_field_ != "manifest") return absl::OkStatus();
    if (event.depth == kEntries) return HandleEntry(event);
    return Annotate(HandleInEntry(event), ShortJson(entry_.path));
  }

  absl::StatusOr<SnapshotManifest> Finish() &&;

 private:
  absl::Status HandleTop(const JsonEvent& event);
  absl::Status HandleEntry(const JsonEvent& event);
  absl::Status HandleInEntry(const JsonEvent& event);
  absl::Status HandlePieces(const JsonEvent& event);
  absl::Status HandlePieceField(const JsonEvent& event);
  absl::Status FinishEntry();
  absl::Status FinishPiece();
  // Sets rank and path. Every path element is a key here; SetIndices replaces
  // the positions in lists.
  absl::Status ParsePath(absl::string_view path, SnapshotEntry& entry) const;
  absl::Status FillEntry(SnapshotEntry& entry);
  // Turns the keys after lists in a path into indices.
  void SetIndices(int64_t rank, StatePath& path) const;
  absl::StatusOr<uint32_t> FileNumber(const std::string& location);

  SnapshotManifest manifest_;
  std::string top_field_;
  bool has_manifest_ = false;
  EntryFields entry_;
  PieceFields piece_;
  absl::flat_hash_map<std::string, uint32_t> file_ids_;
  // The lists, in which indices replace keys.
  absl::flat_hash_set<std::pair<int64_t, StatePath>> lists_;
};

absl::Status ManifestParser::HandleTop(const JsonEvent& event) {
  if (event.kind == Event::kKey) {
    top_field_ = std::string(event.text);
    return absl::OkStatus();
  }
  if (top_field_ == "version")
    return TakeJsonText(event, "version", manifest_.version);
  if (top_field_ == "world_size") {
    if (event.kind != Event::kUnsigned || event.number < 1 ||
        event.number > static_cast<uint64_t>(kMaxRanks)) {
      return Bad(
          absl::StrCat("world_size is not a number from 1 to ", kMaxRanks));
    }
    manifest_.world_size = static_cast<int64_t>(event.number);
    return absl::OkStatus();
  }
  if (top_field_ != "manifest") return absl::OkStatus();
  if (event.kind == Event::kEndObject) return absl::OkStatus();
  if (event.kind != Event::kBeginObject) return MisplacedJson("manifest");
  if (has_manifest_) return Bad("manifest occurs twice");
  has_manifest_ = true;
  return absl::OkStatus();
}

absl::Status ManifestParser::HandleEntry(const JsonEvent& event) {
  switch (event.kind) {
    case Event::kKey:
      entry_ = {};
      entry_.path = std::string(event.text);
      return absl::OkStatus();
    case Event::kBeginObject:
      return absl::OkStatus();
    case Event::kEndObject:
      return Annotate(FinishEntry(), ShortJson(entry_.path));
    default:
      return MisplacedJson(ShortJson(entry_.path));
  }
}

absl::Status ManifestParser::HandleInEntry(const JsonEvent& event) {
  if (event.depth == kEntryFields && event.kind == Event::kKey) {
    entry_.field = std::string(event.text);
    return absl::OkStatus();
  }
  if (entry_.field == "type") return TakeJsonText(event, "type", entry_.type);
  if (entry_.field == "serialized_value") {
    entry_.has_value = true;
    return TakeJsonText(event, entry_.field, entry_.serialized_value);
  }
  if (entry_.field == "replicated") {
    if (event.kind != Event::kBool) return MisplacedJson("replicated");
    entry_.is_replicated = event.number != 0;
    return absl::OkStatus();
  }
  if (entry_.field == "shards" || entry_.field == "chunks") {
    return HandlePieces(event);
  }
  if (StoredFields::Has(entry_.field)) {
    return entry_.stored.Take(entry_.field, event);
  }
  return absl::OkStatus();  // keys, mesh, dim_map, readable, obj_type
}

absl::Status ManifestParser::HandlePieces(const JsonEvent& event) {
  if (event.depth == kEntryFields) {
    return event.kind == Event::kBeginArray || event.kind == Event::kEndArray
               ? absl::OkStatus()
               : MisplacedJson(entry_.field);
  }
  if (event.depth > kPieces) return HandlePieceField(event);
  if (event.kind == Event::kBeginObject) {
    piece_ = {};
    return absl::OkStatus();
  }
  if (event.kind == Event::kEndObject) return FinishPiece();
  return MisplacedJson(entry_.field);
}

absl::Status ManifestParser::HandlePieceField(const JsonEvent& event) {
  if (event.depth == kPieceFields && event.kind == Event::kKey) {
    piece_.field = std::string(event.text);
    return absl::OkStatus();
  }
  if (piece_.field == "offsets") {
    return piece_.offsets.Take(event, piece_.field);
  }
  if (piece_.field == "sizes") return piece_.sizes.Take(event, piece_.field);
  if (piece_.field != "tensor") return absl::OkStatus();
  if (event.depth == kPieceFields) {
    piece_.has_tensor = true;
    return event.kind == Event::kBeginObject || event.kind == Event::kEndObject
               ? absl::OkStatus()
               : MisplacedJson(piece_.field);
  }
  if (event.depth == kPieceFields + 1 && event.kind == Event::kKey) {
    piece_.tensor_field = std::string(event.text);
    return absl::OkStatus();
  }
  return StoredFields::Has(piece_.tensor_field)
             ? piece_.tensor.Take(piece_.tensor_field, event)
             : absl::OkStatus();
}

absl::StatusOr<uint32_t> ManifestParser::FileNumber(
    const std::string& location) {
  const auto found = file_ids_.find(location);
  if (found != file_ids_.end()) return found->second;
  if (const absl::Status path = CheckRelativePath(location); !path.ok()) {
    return absl::DataLossError(path.message());
  }
  if (manifest_.files.size() >= kMaxFiles) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxFiles, " files"));
  }
  const auto id = static_cast<uint32_t>(manifest_.files.size());
  manifest_.files.push_back(location);
  file_ids_.emplace(location, id);
  return id;
}

absl::Status ManifestParser::FinishPiece() {
  SnapshotPiece piece;
  piece.box = {.offsets = piece_.offsets.values(),
               .sizes = piece_.sizes.values()};
  if (!piece_.has_tensor) return Bad("a piece has no tensor");
  DCP_ASSIGN_OR_RETURN(const uint32_t file,
                       FileNumber(piece_.tensor.location()));
  DCP_ASSIGN_OR_RETURN(piece.tensor, piece_.tensor.Tensor(file));
  if (piece.tensor.form == SnapshotTensor::Form::kQuantized) {
    return absl::UnimplementedError("quantized tensors are not supported");
  }
  Dims ends = piece.box.offsets;
  bool fits = ends.size() == piece.box.sizes.size() &&
              piece.box.sizes == piece.tensor.shape;
  for (size_t d = 0; fits && d < ends.size(); ++d) {
    fits = !__builtin_add_overflow(ends[d], piece.box.sizes[d], &ends[d]);
  }
  if (!fits) {
    return Bad(absl::StrCat("a piece of sizes ", ShapeToString(piece.box.sizes),
                            " at ", ShapeToString(piece.box.offsets),
                            " consists of a tensor of shape ",
                            ShapeToString(piece.tensor.shape)));
  }
  entry_.pieces.push_back(std::move(piece));
  return absl::OkStatus();
}

absl::Status ManifestParser::ParsePath(absl::string_view path,
                                       SnapshotEntry& entry) const {
  if (path.size() > kMaxNameBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a path of ", path.size(), " bytes exceeds ", kMaxNameBytes));
  }
  const size_t slash = path.find('/');
  const absl::string_view rank = path.substr(0, slash);
  const bool is_number =
      !rank.empty() && std::all_of(rank.begin(), rank.end(), [](char c) {
        return absl::ascii_isdigit(static_cast<unsigned char>(c));
      });
  if (!is_number || !absl::SimpleAtoi(rank, &entry.rank)) {
    return Bad("the path does not begin with a rank");
  }
  if (slash == absl::string_view::npos) return absl::OkStatus();
  for (const absl::string_view key :
       absl::StrSplit(path.substr(slash + 1), '/')) {
    if (entry.path.size() == kMaxKeys) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a path of more than ", kMaxKeys, " keys"));
    }
    DCP_ASSIGN_OR_RETURN(std::string decoded, DecodeKey(key));
    entry.path.emplace_back(std::move(decoded));
  }
  return absl::OkStatus();
}

absl::Status ManifestParser::FillEntry(SnapshotEntry& entry) {
  entry.is_replicated = entry_.is_replicated;
  switch (entry.kind) {
    case EntryKind::kTensor: {
      DCP_ASSIGN_OR_RETURN(const uint32_t file,
                           FileNumber(entry_.stored.location()));
      DCP_ASSIGN_OR_RETURN(entry.tensor, entry_.stored.Tensor(file));
      return absl::OkStatus();
    }
    case EntryKind::kObject: {
      DCP_ASSIGN_OR_RETURN(const uint32_t file,
                           FileNumber(entry_.stored.location()));
      DCP_ASSIGN_OR_RETURN(entry.range, entry_.stored.Object(file));
      return absl::OkStatus();
    }
    case EntryKind::kChunked: {
      DCP_ASSIGN_OR_RETURN(entry.tensor, entry_.stored.TensorType());
      break;
    }
    case EntryKind::kSharded:
      if (!entry_.pieces.empty()) {
        entry.tensor.dtype = entry_.pieces[0].tensor.dtype;
      }
      break;
    default:
      if (!entry_.has_value) return Bad("the entry has no serialized_value");
      entry.text = std::move(entry_.serialized_value);
      return absl::OkStatus();
  }
  for (const SnapshotPiece& piece : entry_.pieces) {
    if (piece.tensor.dtype != entry.tensor.dtype) {
      return Bad(absl::StrCat("a piece is ", TorchName(piece.tensor.dtype),
                              ", but the tensor is ",
                              TorchName(entry.tensor.dtype)));
    }
  }
  entry.pieces = std::move(entry_.pieces);
  return absl::OkStatus();
}

absl::Status ManifestParser::FinishEntry() {
  SnapshotEntry entry;
  DCP_RETURN_IF_ERROR(ParsePath(entry_.path, entry));
  if (entry_.type == "list") {
    if (entry.path.empty()) return Bad("the state of a rank is a list");
    lists_.emplace(entry.rank, std::move(entry.path));
    return absl::OkStatus();
  }
  if (entry_.type == "dict" || entry_.type == "OrderedDict") {
    return absl::OkStatus();
  }
  const std::optional<EntryKind> kind = ParseEntryKind(entry_.type);
  if (!kind.has_value()) {
    return absl::UnimplementedError(absl::StrCat(
        "entries of type '", ShortJson(entry_.type), "' are not supported"));
  }
  if (entry.path.empty()) return Bad("a value has no name");
  entry.kind = *kind;
  DCP_RETURN_IF_ERROR(FillEntry(entry));
  manifest_.entries.push_back(std::move(entry));
  return absl::OkStatus();
}

void ManifestParser::SetIndices(int64_t rank, StatePath& path) const {
  if (lists_.empty()) return;
  std::pair<int64_t, StatePath> container(rank, StatePath());
  for (PathElement& key : path) {
    std::string text = std::get<std::string>(key);
    int64_t index = 0;
    if (lists_.contains(container) && absl::SimpleAtoi(text, &index) &&
        index >= 0 && absl::StrCat(index) == text) {
      key = index;
    }
    container.second.emplace_back(std::move(text));
  }
}

absl::StatusOr<SnapshotManifest> ManifestParser::Finish() && {
  if (!has_manifest_) return Bad("there is no manifest");
  if (manifest_.world_size == 0) return Bad("there is no world_size");
  for (SnapshotEntry& entry : manifest_.entries) {
    if (entry.rank >= manifest_.world_size) {
      return Bad(absl::StrCat("there is an entry of rank ", entry.rank,
                              ", but the world size is ",
                              manifest_.world_size));
    }
    SetIndices(entry.rank, entry.path);
  }
  for (const auto& [rank, path] : lists_) {
    if (rank >= manifest_.world_size) continue;
    manifest_.lists.emplace_back(rank, path);
    SetIndices(rank, manifest_.lists.back().second);
  }
  std::stable_sort(manifest_.entries.begin(), manifest_.entries.end(),
                   [](const SnapshotEntry& a, const SnapshotEntry& b) {
                     return a.rank < b.rank;
                   });
  return std::move(manifest_);
}

}  // namespace

absl::StatusOr<SnapshotManifest> ParseSnapshotManifest(uint64_t length,
                                                       ReadAt read) {
  ManifestParser parser;
  DCP_RETURN_IF_ERROR(ParseJson(length, read, [&](const JsonEvent& event) {
    return parser.Handle(event);
  }));
  return std::move(parser).Finish();
}

}  // namespace dcp
