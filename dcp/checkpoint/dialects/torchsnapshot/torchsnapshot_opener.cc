// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/torchsnapshot/torchsnapshot_opener.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/checkpoint/dialects/torchsnapshot/list_values.h"
#include "dcp/checkpoint/dialects/torchsnapshot/snapshot_manifest.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/formats/torch_opener.h"
#include "dcp/format/pickle/pickle_text.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/format/torch/state_tree.h"
#include "dcp/format/torch/value_copy.h"
#include "dcp/plan/chunk_index.h"

namespace dcp {
namespace {

// TorchSnapshot writes this file last.
constexpr absl::string_view kSnapshotMetadataName = ".snapshot_metadata";

using EntryKind = SnapshotEntry::Kind;

absl::Status BadText(absl::string_view kind, absl::string_view text) {
  return absl::DataLossError(absl::StrCat("the serialized_value '",
                                          text.substr(0, 60), "' is not ", kind,
                                          " as TorchSnapshot writes it"));
}

// The value that the manifest itself holds.
absl::StatusOr<Value> DecodeValue(const SnapshotEntry& entry,
                                  ValueArena& arena) {
  std::string bytes;
  switch (entry.kind) {
    case EntryKind::kInt: {
      const std::optional<std::string> number = ParseDecimalInt(entry.text);
      if (!number.has_value()) return BadText("an int", entry.text);
      if (number->size() > sizeof(int64_t)) return arena.BigInt(*number);
      // The number's sign fills the bytes that it does not have.
      const bool is_negative =
          !number->empty() && (static_cast<uint8_t>(number->back()) & 0x80);
      std::string whole(sizeof(int64_t), is_negative ? '\xff' : '\0');
      std::copy(number->begin(), number->end(), whole.begin());
      return Value::Int(LoadLittleEndian<int64_t>(AsBytes(whole).data()));
    }
    case EntryKind::kStr:
      return arena.Str(entry.text);
    case EntryKind::kBool:
      if (entry.text != "True" && entry.text != "False") {
        return BadText("a bool", entry.text);
      }
      return Value::Bool(entry.text == "True");
    case EntryKind::kBytes:
      if (!absl::Base64Unescape(entry.text, &bytes)) {
        return BadText("a bytes", entry.text);
      }
      return arena.Bytes(bytes);
    default:
      if (!absl::Base64Unescape(entry.text, &bytes) ||
          bytes.size() != sizeof(double)) {
        return BadText("a float", entry.text);
      }
      return Value::Float(LoadLittleEndian<double>(AsBytes(bytes).data()));
  }
}

absl::StatusOr<SnapshotManifest> ParseManifestFile(
    FileSystem& fs, const File& file, const std::stop_token& stop) {
  if (file.size > kMaxManifestBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a manifest of ", file.size, " bytes exceeds ", kMaxManifestBytes));
  }
  FileReader reader(fs, file, 0, file.size, stop);
  DCP_ASSIGN_OR_RETURN(const ByteSpan head,
                       reader.Read(0, std::min<uint64_t>(1, file.size)));
  if (AsText(head) != "{") {
    return absl::UnimplementedError(
        "the manifest is not JSON; development versions of TorchSnapshot wrote "
        "YAML, which is not supported: load the snapshot with such a version "
        "and take it again with 0.1.0 or later");
  }
  return ParseSnapshotManifest(file.size, reader.read_at());
}

class SnapshotReader {
 public:
  SnapshotReader(const SourceDirectory& directory, const OpenOptions& options,
                 const std::stop_token& stop)
      : directory_(directory), options_(options), stop_(stop) {}

  absl::StatusOr<CheckpointParts> Run();

 private:
  absl::Status ReadManifest();
  // Finds the files' sizes, and reads the files that are archives. If one
  // cannot be read, Add returns the error.
  void ReadAhead();
  // The shapes of sharded tensors, which only all pieces together show.
  absl::Status FindShapes();
  absl::Status Add(const SnapshotEntry& entry);
  absl::Status AddValues();
  absl::StatusOr<CheckpointEntry> MakeObjectEntry(const SnapshotEntry& entry);
  absl::StatusOr<CheckpointEntry> QuantizedEntry(const SnapshotTensor& tensor);
  absl::StatusOr<StateCollector::Part> FindPart(const SnapshotEntry& entry,
                                                const Dims& shape);
  absl::StatusOr<ChunkLocation> LocateTensor(const SnapshotTensor& tensor);
  // The archive in a range that is Bounded. Several replicas may share one.
  absl::StatusOr<const TorchArchive*> FindArchive(const SnapshotRange& range,
                                                  bool may_be_known);
  // Reads the archive in a range that is Bounded.
  absl::StatusOr<std::unique_ptr<TorchArchive>> ReadArchive(
      const SnapshotRange& range);
  absl::StatusOr<uint64_t> FindFileSize(uint32_t file);
  // The range, which is checked to be in its file.
  absl::StatusOr<SnapshotRange> Bounded(const SnapshotRange& range);

  const SourceDirectory& directory_;
  const OpenOptions& options_;
  const std::stop_token& stop_;
  SnapshotManifest manifest_;
  CheckpointParts parts_;
  StateCollector collector_;
  std::vector<std::optional<uint64_t>> file_sizes_;
  std::vector<uint64_t> archive_bytes_;  // each file's bytes in archives
  std::vector<std::unique_ptr<TorchArchive>>
      ahead_;  // by file, until it is added
  // Archives that are only a part of their file, by file, begin and end.
  std::map<std::tuple<uint32_t, uint64_t, uint64_t>,
           std::unique_ptr<TorchArchive>>
      partial_archives_;
  std::vector<RankPath> sharded_;
  std::vector<RankValue> values_;
  absl::flat_hash_map<std::string, Dims> shapes_;  // by name
  absl::flat_hash_set<std::string> replicated_;    // names
};

absl::Status SnapshotReader::ReadManifest() {
  const std::string path = directory_.FullPath(kSnapshotMetadataName);
  DCP_ASSIGN_OR_RETURN(const File file,
                       directory_.fs->OpenForRead(path, DirectMode::kOff,
                                                  /*follow_symlinks=*/false));
  absl::StatusOr<SnapshotManifest> manifest =
      ParseManifestFile(*directory_.fs, file, stop_);
  DCP_RETURN_IF_ERROR(directory_.fs->Close(file));
  if (!manifest.ok()) return Annotate(manifest.status(), path);
  manifest_ = *std::move(manifest);
  // The last file is the manifest, in which some values are.
  std::vector<std::string> names = manifest_.files;
  names.emplace_back(kSnapshotMetadataName);
  file_sizes_.resize(names.size());
  archive_bytes_.resize(names.size());
  parts_.archives.resize(names.size());
  parts_.files = std::make_unique<SourceFiles>(
      *directory_.fs, directory_.path, std::move(names), options_.direct,
      /*follow_symlinks=*/false);
  return absl::OkStatus();
}

void SnapshotReader::ReadAhead() {
  std::vector<char> is_archive(parts_.files->names().size());
  const auto mark = [&](bool is_one, const SnapshotRange& range) {
    if (is_one && range.is_whole) is_archive[range.file] = true;
  };
  constexpr auto kArchive = SnapshotTensor::Form::kTorchSave;
  for (const SnapshotEntry& entry : manifest_.entries) {
    mark(entry.kind == EntryKind::kObject, entry.range);
    mark(entry.kind == EntryKind::kTensor && entry.tensor.form == kArchive,
         entry.tensor.range);
    for (const SnapshotPiece& piece : entry.pieces) {
      mark(piece.tensor.form == kArchive, piece.tensor.range);
    }
  }
  ahead_.resize(is_archive.size());
  const auto read = [&](uint32_t file) {
    const absl::StatusOr<uint64_t> size = FindFileSize(file);
    if (!size.ok() || !is_archive[file]) return absl::OkStatus();
    auto archive = ReadArchive({.file = file, .begin = 0, .end = *size});
    if (archive.ok()) ahead_[file] = *std::move(archive);
    return absl::OkStatus();
  };
  parts_.files->ForEach(stop_, read).IgnoreError();
}

absl::StatusOr<std::unique_ptr<TorchArchive>> SnapshotReader::ReadArchive(
    const SnapshotRange& range) {
  DCP_ASSIGN_OR_RETURN(const File opened, parts_.files->Get(range.file));
  DCP_ASSIGN_OR_RETURN(
      TorchArchive archive,
      ReadArchiveInFile(*directory_.fs, opened, range.begin,
                        range.end - range.begin, options_, stop_));
  return std::make_unique<TorchArchive>(std::move(archive));
}

absl::StatusOr<uint64_t> SnapshotReader::FindFileSize(uint32_t file) {
  std::optional<uint64_t>& size = file_sizes_[file];
  if (size.has_value()) return *size;
  // Opening each of a million files would be slow, and they would stay open.
  DCP_ASSIGN_OR_RETURN(const FileInfo info,
                       directory_.fs->Stat(parts_.files->FullPath(file)));
  if (info.kind != FileKind::kFile) {
    return absl::DataLossError(
        absl::StrCat(parts_.files->FullPath(file), " is not a regular file"));
  }
  size = info.size;
  return info.size;
}

absl::StatusOr<SnapshotRange> SnapshotReader::Bounded(
    const SnapshotRange& range) {
  DCP_ASSIGN_OR_RETURN(const uint64_t size, FindFileSize(range.file));
  SnapshotRange bounded = range;
  if (range.is_whole) {
    bounded.begin = 0;
    bounded.end = size;
  }
  if (bounded.end <= size) return bounded;
  return absl::DataLossError(absl::StrCat(
      "byte_range [", bounded.begin, ", ", bounded.end,
      "] reaches past the end of ", parts_.files->names()[range.file],
      ", which has ", size, " bytes"));
}

absl::StatusOr<const TorchArchive*> SnapshotReader::FindArchive(
    const SnapshotRange& range, bool may_be_known) {
  const uint32_t file = range.file;
  const bool is_whole = range.begin == 0 && range.end == *file_sizes_[file];
  std::unique_ptr<TorchArchive>& archive =
      is_whole ? parts_.archives[file]
               : partial_archives_[{file, range.begin, range.end}];
  if (archive != nullptr && may_be_known) return archive.get();
  // Nothing is read twice, so that opening is not more work than reading all
  // files.
  archive_bytes_[file] += range.end - range.begin;
  if (archive_bytes_[file] > *file_sizes_[file]) {
    return absl::DataLossError("the byte ranges of several objects overlap");
  }
  if (is_whole && ahead_[file] != nullptr) {
    archive = std::move(ahead_[file]);
    return archive.get();
  }
  DCP_ASSIGN_OR_RETURN(archive, ReadArchive(range));
  return archive.get();
}

absl::StatusOr<ChunkLocation> SnapshotReader::LocateTensor(
    const SnapshotTensor& tensor) {
  const std::string& name = parts_.files->names()[tensor.range.file];
  DCP_ASSIGN_OR_RETURN(const SnapshotRange bounded, Bounded(tensor.range));
  if (tensor.form == SnapshotTensor::Form::kTorchSave) {
    absl::StatusOr<const TorchArchive*> archive =
        FindArchive(bounded, /*may_be_known=*/true);
    if (!archive.ok()) return Annotate(archive.status(), name);
    absl::StatusOr<TensorEntry> stored = TensorInArchive(
        **archive, (*archive)->root, bounded.file, bounded.begin);
    if (!stored.ok()) return Annotate(stored.status(), name);
    if (stored->dtype != tensor.dtype || stored->shape != tensor.shape) {
      return absl::DataLossError(absl::StrCat(
          name, " holds ", TorchName(stored->dtype), " ",
          ShapeToString(stored->shape), ", but the manifest says ",
          TorchName(tensor.dtype), " ", ShapeToString(tensor.shape)));
    }
    return std::move(stored->locations[0]);
  }
  const uint64_t num_bytes =
      static_cast<uint64_t>(Volume(tensor.shape)) * ElementSize(tensor.dtype);
  if (bounded.end - bounded.begin != num_bytes) {
    return absl::DataLossError(
        absl::StrCat(name, " has ", bounded.end - bounded.begin, " bytes, but ",
                     TorchName(tensor.dtype), " ", ShapeToString(tensor.shape),
                     " has ", num_bytes));
  }
  ChunkLocation location;
  location.located = true;
  location.item = {
      .file = tensor.range.file, .offset = bounded.begin, .length = num_bytes};
  location.payload_offset = bounded.begin;
  return location;
}

absl::StatusOr<StateCollector::Part> SnapshotReader::FindPart(
    const SnapshotEntry& entry, const Dims& shape) {
  StateCollector::Part part;
  part.dtype = entry.tensor.dtype;
  part.shape = shape;
  for (const SnapshotPiece& piece : entry.pieces) {
    if (piece.box.offsets.size() != shape.size() ||
        !Contains(WholeBox(shape), piece.box)) {
      return absl::DataLossError(
          absl::StrCat("a piece of sizes ", ShapeToString(piece.box.sizes),
                       " at ", ShapeToString(piece.box.offsets),
                       " is not inside shape ", ShapeToString(shape)));
    }
    DCP_ASSIGN_OR_RETURN(ChunkLocation location, LocateTensor(piece.tensor));
    part.boxes.push_back(piece.box);
    part.locations.push_back(std::move(location));
  }
  return part;
}

absl::StatusOr<CheckpointEntry> SnapshotReader::QuantizedEntry(
    const SnapshotTensor& tensor) {
  ObjectEntry object;
  object.item.file = tensor.range.file;
  object.located = true;
  object.unreadable =
      absl::UnimplementedError("quantized tensors are not supported");
  CheckpointEntry entry;
  entry.value = std::move(object);
  return entry;
}

absl::StatusOr<CheckpointEntry> SnapshotReader::MakeObjectEntry(
    const SnapshotEntry& entry) {
  CheckpointEntry result;
  if (entry.kind == EntryKind::kObject) {
    DCP_ASSIGN_OR_RETURN(const SnapshotRange bounded, Bounded(entry.range));
    const absl::StatusOr<const TorchArchive*> archive =
        FindArchive(bounded, /*may_be_known=*/false);
    if (!archive.ok()) {
      return Annotate(archive.status(), parts_.files->names()[bounded.file]);
    }
    const bool is_kept = *archive == parts_.archives[bounded.file].get();
    return EntryInArchive(
        **archive,
        is_kept ? (*archive)->root : CopyValue(parts_.arena, (*archive)->root),
        bounded.file, bounded.begin);
  }
  if (entry.kind == EntryKind::kTensor || entry.kind == EntryKind::kChunked) {
    if (entry.tensor.form == SnapshotTensor::Form::kQuantized) {
      return QuantizedEntry(entry.tensor);
    }
    TensorEntry tensor;
    tensor.dtype = entry.tensor.dtype;
    tensor.shape = entry.tensor.shape;
    if (entry.kind == EntryKind::kTensor) {
      DCP_ASSIGN_OR_RETURN(ChunkLocation location, LocateTensor(entry.tensor));
      tensor.boxes.push_back(WholeBox(tensor.shape));
      tensor.locations.push_back(std::move(location));
    } else {
      DCP_ASSIGN_OR_RETURN(StateCollector::Part part,
                           FindPart(entry, tensor.shape));
      DCP_RETURN_IF_ERROR(CheckCoverage(tensor.shape, part.boxes));
      tensor.boxes = std::move(part.boxes);
      tensor.locations = std::move(part.locations);
    }
    result.value = std::move(tensor);
    return result;
  }
  ObjectEntry object;
  DCP_ASSIGN_OR_RETURN(object.value, DecodeValue(entry, parts_.arena));
  object.item.file = static_cast<uint32_t>(parts_.files->names().size() - 1);
  object.located = true;
  result.value = std::move(object);
  return result;
}

absl::Status SnapshotReader::FindShapes() {
  for (const SnapshotEntry& entry : manifest_.entries) {
    if (entry.kind != EntryKind::kSharded) continue;
    const std::string name = PathToName(entry.path);
    for (const SnapshotPiece& piece : entry.pieces) {
      Dims& shape =
          shapes_.emplace(name, Dims(piece.box.offsets.size())).first->second;
      if (shape.size() != piece.box.offsets.size()) {
        return absl::DataLossError(absl::StrCat(
            name, ": a piece at ", ShapeToString(piece.box.offsets),
            " is next to pieces of ", shape.size(), " dimensions"));
      }
      for (size_t d = 0; d < shape.size(); ++d) {
        shape[d] =
            std::max(shape[d], piece.box.offsets[d] + piece.box.sizes[d]);
      }
    }
  }
  for (const auto& [name, shape] : shapes_) {
    const std::optional<int64_t> volume = CheckedVolume(shape);
    constexpr uint64_t kMaxElementBytes = 16;
    if (volume.has_value() &&
        CheckedMul(static_cast<uint64_t>(*volume), kMaxElementBytes)
            .has_value()) {
      continue;
    }
    return absl::DataLossError(absl::StrCat(
        name, ": the shape ", ShapeToString(shape), " exceeds 64 bits"));
  }
  return absl::OkStatus();
}

absl::Status SnapshotReader::Add(const SnapshotEntry& entry) {
  if (entry.kind == EntryKind::kSharded) {
    const auto shape = shapes_.find(PathToName(entry.path));
    if (shape == shapes_.end()) return absl::OkStatus();  // no rank has pieces
    if (entry.pieces.empty()) return absl::OkStatus();
    sharded_.emplace_back(entry.rank, entry.path);
    DCP_ASSIGN_OR_RETURN(StateCollector::Part part,
                         FindPart(entry, shape->second));
    return collector_.AddPart(entry.path, entry.rank, std::move(part));
  }
  // Old versions list replicated values under every rank.
  if (entry.is_replicated &&
      !replicated_.insert(PathToName(entry.path)).second) {
    return absl::OkStatus();
  }
  DCP_ASSIGN_OR_RETURN(CheckpointEntry value, MakeObjectEntry(entry));
  values_.push_back({{entry.rank, entry.path}, std::move(value)});
  return absl::OkStatus();
}

absl::Status SnapshotReader::AddValues() {
  const auto file = static_cast<uint32_t>(parts_.files->names().size() - 1);
  JoinLists(sharded_, manifest_.lists, file, parts_.arena, values_);
  std::stable_sort(values_.begin(), values_.end(),
                   [](const RankValue& a, const RankValue& b) {
                     return a.place.first < b.place.first;
                   });
  for (RankValue& value : values_) {
    const auto& [rank, path] = value.place;
    DCP_RETURN_IF_ERROR(
        Annotate(collector_.AddValue(path, rank, std::move(value.entry)),
                 PathToName(path)));
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointParts> SnapshotReader::Run() {
  parts_.format = Format::kTorch;
  parts_.dialect = Dialect::kTorchSnapshot;
  DCP_RETURN_IF_ERROR(ReadManifest());
  const std::string path = directory_.FullPath(kSnapshotMetadataName);
  DCP_RETURN_IF_ERROR(Annotate(FindShapes(), path));
  ReadAhead();
  for (const SnapshotEntry& entry : manifest_.entries) {
    DCP_RETURN_IF_ERROR(CheckStop(stop_, kOpening));
    DCP_RETURN_IF_ERROR(Annotate(Add(entry), path, ": ", PathToName(entry.path),
                                 " of rank ", entry.rank));
  }
  DCP_RETURN_IF_ERROR(Annotate(AddValues(), path));
  absl::StatusOr<std::vector<CheckpointEntry>> entries =
      std::move(collector_).Finish();
  if (!entries.ok()) return Annotate(entries.status(), path);
  parts_.entries = *std::move(entries);
  std::vector<StatePath> paths;
  paths.reserve(parts_.entries.size());
  for (const CheckpointEntry& entry : parts_.entries) {
    paths.push_back(entry.path);
  }
  if (const absl::Status status = CheckPaths(paths); !status.ok()) {
    return absl::DataLossError(absl::StrCat(path, ": ", status.message()));
  }
  if (!manifest_.version.empty()) {
    parts_.properties.emplace_back("version", manifest_.version);
  }
  parts_.properties.emplace_back("ranks", absl::StrCat(manifest_.world_size));
  return std::move(parts_);
}

}  // namespace

absl::StatusOr<std::optional<CheckpointParts>> TryOpenTorchSnapshot(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop) {
  if (!directory.HasFile(kSnapshotMetadataName)) return std::nullopt;
  DCP_ASSIGN_OR_RETURN(CheckpointParts parts,
                       SnapshotReader(directory, options, stop).Run());
  return parts;
}

absl::Status CheckSnapshotFinished(const SourceDirectory& directory,
                                   const std::stop_token& /*stop*/) {
  for (const absl::string_view name : {"batched", "replicated", "sharded"}) {
    if (!directory.HasDirectory(name)) continue;
    return absl::NotFoundError(
        absl::StrCat(directory.path, ": there is the folder ", name,
                     " of TorchSnapshot but no ", kSnapshotMetadataName,
                     ", which is written last: the save did not finish"));
  }
  return absl::OkStatus();
}

}  // namespace dcp
