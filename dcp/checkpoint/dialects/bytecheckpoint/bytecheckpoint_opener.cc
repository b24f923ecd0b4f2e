// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/bytecheckpoint/bytecheckpoint_opener.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/checkpoint/dialects/ranks/rank_files.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/formats/torch_opener.h"
#include "dcp/format/index/bytecheckpoint_metadata.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/format/torch/value_copy.h"
#include "dcp/plan/chunk_index.h"

namespace dcp {
namespace {

constexpr absl::string_view kModel = "model";
constexpr absl::string_view kExtraFolder = "extra_state";
constexpr absl::string_view kExtraStateFiles = "extra_state_rank_{rank}.pt";
constexpr absl::string_view kFlat = "_flat_param";

bool IsTensor(const MetadataEntry& entry) {
  return std::holds_alternative<TensorStorageMetadata>(entry.value);
}

// A folder's index.
struct Index {
  std::string folder;  // also the first element in all paths
  uint32_t first_file = 0;
  ByteCheckpointMetadata contents;
};

class ByteCheckpointReader {
 public:
  ByteCheckpointReader(const SourceDirectory& directory,
                       const OpenOptions& options, const std::stop_token& stop)
      : directory_(directory), options_(options), stop_(stop) {}

  absl::StatusOr<CheckpointParts> Run();

 private:
  absl::Status ReadIndices();
  absl::Status FindExtra();
  absl::Status AddIndex(const Index& index);
  absl::Status AddTensor(const Index& index, size_t entry);
  absl::Status AddFlat(
      const Index& index, const StateCollector::Part& flat,
      absl::Span<const ByteCheckpointMetadata::FlatSlot> slots);
  // Reads the archives of all objects in an index, in the index's order.
  absl::StatusOr<std::vector<TorchArchive>> ReadObjects(const Index& index);
  absl::Status AddObject(const Index& index, size_t entry,
                         const TorchArchive& archive);
  StorageInfo StoredItem(const Index& index, size_t entry) const;
  absl::Status AddExtra();
  // Reads a file with a rank's extra state.
  absl::Status ReadExtra(uint32_t index);
  // Adds the leaves in `value`, which is in `archive` at byte `begin` of file
  // `file`, below `path`.
  absl::Status AddLeaves(const TorchArchive& archive, const Value& value,
                         uint32_t file, uint64_t begin, const StatePath& path,
                         int64_t rank);
  absl::StatusOr<StateCollector::Part> FindPart(const Index& index,
                                                size_t entry);
  StatePath FullPath(const Index& index, size_t entry) const;
  void AddProperties();

  const SourceDirectory& directory_;
  const OpenOptions& options_;
  const std::stop_token& stop_;
  std::vector<std::string> names_;  // all files
  std::vector<Index> indices_;
  uint32_t first_extra_ = 0;
  size_t num_extra_ = 0;
  std::vector<uint64_t> object_bytes_;  // for each file
  CheckpointParts parts_;
  StateCollector collector_;
};

absl::Status ByteCheckpointReader::ReadIndices() {
  for (const absl::string_view folder :
       {kModel, absl::string_view("optimizer")}) {
    const std::string path =
        JoinPath(directory_.FullPath(folder), kDcpMetadataName);
    const absl::Status there = directory_.fs->Stat(path).status();
    if (absl::IsNotFound(there)) continue;
    DCP_RETURN_IF_ERROR(there);
    DCP_ASSIGN_OR_RETURN(const std::string bytes,
                         ReadFile(*directory_.fs, path, kMaxMetadataBytes,
                                  /*follow_symlinks=*/false, stop_));
    absl::StatusOr<ByteCheckpointMetadata> contents =
        ParseByteCheckpointMetadata(AsBytes(bytes));
    if (!contents.ok()) return Annotate(contents.status(), path);
    Index& index = indices_.emplace_back();
    index.folder = std::string(folder);
    index.first_file = static_cast<uint32_t>(names_.size());
    index.contents = *std::move(contents);
    for (const std::string& name : index.contents.metadata.files) {
      names_.push_back(JoinPath(folder, name));
    }
  }
  return absl::OkStatus();
}

absl::Status ByteCheckpointReader::FindExtra() {
  first_extra_ = static_cast<uint32_t>(names_.size());
  DCP_ASSIGN_OR_RETURN(const std::optional<SourceDirectory> folder,
                       OpenChildDirectory(directory_, kExtraFolder));
  if (!folder.has_value() || folder->entries.empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<RankFiles>> files =
      FindRankFiles(folder->entries, kExtraStateFiles);
  if (!files.ok()) return Annotate(files.status(), folder->path);
  for (const std::string& name : files->front().names) {
    names_.push_back(JoinPath(kExtraFolder, name));
  }
  num_extra_ = files->front().names.size();
  return absl::OkStatus();
}

StatePath ByteCheckpointReader::FullPath(const Index& index,
                                         size_t entry) const {
  const MetadataEntry& found = index.contents.metadata.entries[entry];
  StatePath path = {index.folder};
  if (found.path.empty()) {
    path.emplace_back(found.fqn);
  } else {
    path.insert(path.end(), found.path.begin(), found.path.end());
  }
  return path;
}

absl::StatusOr<StateCollector::Part> ByteCheckpointReader::FindPart(
    const Index& index, size_t entry) {
  const auto& tensor = std::get<TensorStorageMetadata>(
      index.contents.metadata.entries[entry].value);
  StateCollector::Part part;
  part.dtype = tensor.dtype;
  part.shape = tensor.size;
  for (size_t i = 0; i < tensor.chunks.size(); ++i) {
    const ChunkStorageMetadata& chunk = tensor.chunks[i];
    if (Volume(chunk.box.sizes) == 0) continue;
    const ByteCheckpointMetadata::Chunk& stored =
        index.contents.chunks[entry][i];
    ChunkLocation location;
    location.item = chunk.storage;
    location.item.file += index.first_file;
    DCP_RETURN_IF_ERROR(parts_.files->CheckRange(
        location.item.file, location.item.offset, location.item.length));
    location.located = true;
    location.payload_offset = chunk.storage.offset + stored.offset;
    location.strides = stored.strides;
    location.conj = stored.conj;
    location.neg = stored.neg;
    part.boxes.push_back(chunk.box);
    part.locations.push_back(std::move(location));
  }
  return part;
}

absl::Status ByteCheckpointReader::AddFlat(
    const Index& index, const StateCollector::Part& flat,
    absl::Span<const ByteCheckpointMetadata::FlatSlot> slots) {
  if (flat.shape.size() != 1) {
    return absl::DataLossError(
        absl::StrCat("a flat parameter has shape ", ShapeToString(flat.shape)));
  }
  DCP_RETURN_IF_ERROR(CheckCoverage(flat.shape, flat.boxes));
  int64_t begin = 0;
  for (const ByteCheckpointMetadata::FlatSlot& slot : slots) {
    if (slot.numel > flat.shape[0] - begin) {
      return absl::DataLossError(
          absl::StrCat("its layout has more than the ", flat.shape[0],
                       " elements of the flat parameter"));
    }
    const int64_t end = begin + slot.numel;
    for (size_t i = 0; !slot.name.empty() && i < flat.boxes.size(); ++i) {
      const int64_t chunk_begin = flat.boxes[i].offsets[0];
      const int64_t chunk_size = flat.boxes[i].sizes[0];
      const int64_t from = std::max(begin, chunk_begin);
      const int64_t to = std::min(end, chunk_begin + chunk_size);
      if (from >= to) continue;
      TensorEntry vector;
      vector.dtype = flat.dtype;
      vector.shape = {chunk_size};
      vector.boxes.push_back(WholeBox(vector.shape));
      vector.locations.push_back(flat.locations[i]);
      DCP_RETURN_IF_ERROR(
          collector_.AddPart({index.folder, slot.name}, /*rank=*/0,
                             FlatPart(vector, from - chunk_begin, to - from,
                                      slot.shape, from - begin)));
    }
    begin = end;
  }
  if (begin == flat.shape[0]) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("its layout has ", begin,
                                          " elements, but the flat parameter ",
                                          flat.shape[0]));
}

absl::Status ByteCheckpointReader::AddTensor(const Index& index, size_t entry) {
  DCP_ASSIGN_OR_RETURN(StateCollector::Part part, FindPart(index, entry));
  const auto slots =
      index.contents.flat.find(index.contents.metadata.entries[entry].fqn);
  if (slots != index.contents.flat.end()) {
    return AddFlat(index, part, slots->second);
  }
  return collector_.AddPart(FullPath(index, entry), /*rank=*/0,
                            std::move(part));
}

absl::Status ByteCheckpointReader::AddLeaves(const TorchArchive& archive,
                                             const Value& value, uint32_t file,
                                             uint64_t begin,
                                             const StatePath& path,
                                             int64_t rank) {
  const Value root = parts_.arena.Dict({parts_.arena.Str("value"), value});
  absl::StatusOr<std::vector<FlatValue>> leaves = Flatten(root);
  if (!leaves.ok()) return absl::DataLossError(leaves.status().message());
  for (FlatValue& leaf : *leaves) {
    DCP_RETURN_IF_ERROR(CheckStop(stop_, kOpening));
    StatePath whole = path;
    whole.insert(whole.end(), leaf.path.begin() + 1, leaf.path.end());
    absl::StatusOr<CheckpointEntry> made =
        EntryInArchive(archive, leaf.value, file, begin);
    if (!made.ok()) return Annotate(made.status(), PathToName(whole));
    DCP_RETURN_IF_ERROR(collector_.AddValue(whole, rank, *std::move(made)));
  }
  return absl::OkStatus();
}

StorageInfo ByteCheckpointReader::StoredItem(const Index& index,
                                             size_t entry) const {
  StorageInfo item = std::get<BytesStorageMetadata>(
                         index.contents.metadata.entries[entry].value)
                         .storage;
  item.file += index.first_file;
  return item;
}

absl::StatusOr<std::vector<TorchArchive>> ByteCheckpointReader::ReadObjects(
    const Index& index) {
  const Metadata& metadata = index.contents.metadata;
  std::vector<size_t> objects;
  for (size_t i = 0; i < metadata.entries.size(); ++i) {
    if (IsTensor(metadata.entries[i])) continue;
    const StorageInfo item = StoredItem(index, i);
    DCP_RETURN_IF_ERROR(
        Annotate(parts_.files->CheckRange(item.file, item.offset, item.length),
                 PathToName(FullPath(index, i))));
    DCP_ASSIGN_OR_RETURN(const File file, parts_.files->Get(item.file));
    // Opening is therefore not more work than reading all files.
    object_bytes_[item.file] += item.length;
    if (object_bytes_[item.file] > file.size) {
      return absl::DataLossError(
          absl::StrCat(PathToName(FullPath(index, i)),
                       ": several objects have the same bytes"));
    }
    objects.push_back(i);
  }
  std::vector<TorchArchive> archives(objects.size());
  DCP_RETURN_IF_ERROR(parts_.files->ForMany(
      objects.size(), stop_, [&](size_t i) -> absl::Status {
        const StorageInfo item = StoredItem(index, objects[i]);
        DCP_ASSIGN_OR_RETURN(const File file, parts_.files->Get(item.file));
        absl::StatusOr<TorchArchive> archive = ReadArchiveInFile(
            *directory_.fs, file, item.offset, item.length, options_, stop_);
        if (!archive.ok()) {
          return Annotate(archive.status(),
                          PathToName(FullPath(index, objects[i])));
        }
        archives[i] = *std::move(archive);
        return absl::OkStatus();
      }));
  return archives;
}

absl::Status ByteCheckpointReader::AddObject(const Index& index, size_t entry,
                                             const TorchArchive& archive) {
  const StorageInfo item = StoredItem(index, entry);
  return AddLeaves(archive, CopyValue(parts_.arena, archive.root), item.file,
                   item.offset, FullPath(index, entry), /*rank=*/0);
}

absl::Status ByteCheckpointReader::AddIndex(const Index& index) {
  DCP_ASSIGN_OR_RETURN(const std::vector<TorchArchive> objects,
                       ReadObjects(index));
  const Metadata& metadata = index.contents.metadata;
  size_t next = 0;
  for (size_t i = 0; i < metadata.entries.size(); ++i) {
    DCP_RETURN_IF_ERROR(CheckStop(stop_, kOpening));
    DCP_RETURN_IF_ERROR(Annotate(IsTensor(metadata.entries[i])
                                     ? AddTensor(index, i)
                                     : AddObject(index, i, objects[next++]),
                                 PathToName(FullPath(index, i))));
  }
  return absl::OkStatus();
}

absl::Status ByteCheckpointReader::AddExtra() {
  DCP_RETURN_IF_ERROR(
      parts_.files->ForMany(num_extra_, stop_, [&](size_t rank) {
        return ReadExtra(static_cast<uint32_t>(first_extra_ + rank));
      }));
  for (size_t rank = 0; rank < num_extra_; ++rank) {
    const auto index = static_cast<uint32_t>(first_extra_ + rank);
    const TorchArchive& kept = *parts_.archives[index];
    DCP_RETURN_IF_ERROR(Annotate(AddLeaves(kept, kept.root, index, 0, {"extra"},
                                           static_cast<int64_t>(rank)),
                                 names_[index]));
  }
  return absl::OkStatus();
}

absl::Status ByteCheckpointReader::ReadExtra(uint32_t index) {
  DCP_ASSIGN_OR_RETURN(const File file, parts_.files->Get(index));
  absl::StatusOr<TorchArchive> archive =
      ReadArchiveInFile(*directory_.fs, file, 0, file.size, options_, stop_);
  if (!archive.ok()) return Annotate(archive.status(), names_[index]);
  parts_.archives[index] = std::make_unique<TorchArchive>(*std::move(archive));
  return absl::OkStatus();
}

void ByteCheckpointReader::AddProperties() {
  const std::string& version = indices_[0].contents.metadata.version;
  if (!version.empty()) parts_.properties.emplace_back("version", version);
  if (num_extra_ > 0) {
    parts_.properties.emplace_back("ranks", absl::StrCat(num_extra_));
  }
  for (const CheckpointEntry& entry : parts_.entries) {
    if (!absl::StrContains(entry.fqn, kFlat)) continue;
    parts_.losses.push_back(
        {.part = StatePart::kModel,
         .needs_consent = true,
         .text = absl::StrCat(
             entry.fqn,
             " and perhaps others are flat parameters of FSDP1, and the "
             "checkpoint does not record the parameters in them")});
    break;
  }
}

absl::StatusOr<CheckpointParts> ByteCheckpointReader::Run() {
  parts_.format = Format::kTorch;
  parts_.dialect = Dialect::kByteCheckpoint;
  DCP_RETURN_IF_ERROR(ReadIndices());
  DCP_RETURN_IF_ERROR(FindExtra());
  object_bytes_.resize(names_.size());
  parts_.archives.resize(names_.size());
  parts_.files = std::make_unique<SourceFiles>(*directory_.fs, directory_.path,
                                               names_, options_.direct,
                                               /*follow_symlinks=*/false);
  parts_.files->OpenAhead(AllFiles(names_.size()));
  for (const Index& index : indices_) {
    DCP_RETURN_IF_ERROR(Annotate(AddIndex(index), directory_.path));
  }
  DCP_RETURN_IF_ERROR(Annotate(AddExtra(), directory_.path));
  absl::StatusOr<std::vector<CheckpointEntry>> entries =
      std::move(collector_).Finish();
  if (!entries.ok()) return Annotate(entries.status(), directory_.path);
  parts_.entries = *std::move(entries);
  AddProperties();
  return std::move(parts_);
}

// Whether model/.metadata begins as a ByteCheckpoint index.
absl::StatusOr<bool> IsByteCheckpoint(const SourceDirectory& directory,
                                      const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const std::optional<SourceDirectory> model,
                       OpenChildDirectory(directory, kModel));
  if (!model.has_value() || !model->HasFile(kDcpMetadataName)) return false;
  const std::string path = model->FullPath(kDcpMetadataName);
  DCP_ASSIGN_OR_RETURN(const File file,
                       directory.fs->OpenForRead(path, DirectMode::kOff,
                                                 /*follow_symlinks=*/false));
  constexpr uint64_t kHeadBytes = 256;
  FileReader reader(*directory.fs, file, 0, file.size, stop);
  const absl::StatusOr<ByteSpan> head =
      reader.Read(0, std::min(kHeadBytes, file.size));
  DCP_RETURN_IF_ERROR(directory.fs->Close(file));
  if (!head.ok()) return Annotate(head.status(), path);
  return IsByteCheckpointMetadata(AsText(*head));
}

}  // namespace

absl::StatusOr<std::optional<CheckpointParts>> TryOpenByteCheckpoint(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const bool is_one, IsByteCheckpoint(directory, stop));
  if (!is_one) return std::nullopt;
  DCP_ASSIGN_OR_RETURN(CheckpointParts parts,
                       ByteCheckpointReader(directory, options, stop).Run());
  return parts;
}

}  // namespace dcp
