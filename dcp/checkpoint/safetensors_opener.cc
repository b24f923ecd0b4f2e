#include "dcp/checkpoint/safetensors_opener.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/file_reader.h"
#include "dcp/format/safetensors.h"
#include "dcp/plan/chunk_index.h"

namespace dcp {
namespace {

// What DCP's Hugging Face writer adds about its shards.
constexpr absl::string_view kShardingInfoKey = "DCP_SHARDING_INFO";
constexpr absl::string_view kShardingVersionKey = "DCP_VERSION";

constexpr absl::string_view kIndexSuffix = ".safetensors.index.json";

// Gathers the tensors of several files into entries.
class Collector {
 public:
  absl::Status Add(uint32_t file, const SafetensorsHeader& header) {
    for (const SafetensorsTensor& tensor : header.tensors) {
      DCP_RETURN_IF_ERROR(
          Annotate(AddTensor(file, header, tensor), tensor.name));
    }
    return absl::OkStatus();
  }

  // Shapes are known when all shards are: then coverage can be checked.
  absl::StatusOr<std::vector<CheckpointEntry>> Finish() && {
    for (const CheckpointEntry& entry : entries_) {
      DCP_RETURN_IF_ERROR(
          Annotate(CheckCoverage(entry.tensor()->shape, entry.tensor()->boxes),
                   entry.fqn));
    }
    return std::move(entries_);
  }

 private:
  absl::Status AddTensor(uint32_t file, const SafetensorsHeader& header,
                         const SafetensorsTensor& tensor) {
    Box box = WholeBox(tensor.shape);
    const auto saved = header.saved_offsets.find(tensor.name);
    if (saved != header.saved_offsets.end()) {
      if (saved->second.size() != tensor.shape.size()) {
        return absl::DataLossError(absl::StrCat(
            "DCP_SHARDING_INFO has ", saved->second.size(),
            " offsets for a tensor of ", tensor.shape.size(), " dimensions"));
      }
      box.offsets = saved->second;
    }
    Dims ends(box.sizes.size());
    for (size_t d = 0; d < ends.size(); ++d) {
      if (box.offsets[d] < 0 ||
          __builtin_add_overflow(box.offsets[d], box.sizes[d], &ends[d])) {
        return absl::DataLossError(
            absl::StrCat("DCP_SHARDING_INFO has offset ", box.offsets[d]));
      }
    }
    const auto [it, is_new] = by_name_.emplace(tensor.name, entries_.size());
    if (is_new) {
      TensorEntry entry;
      entry.dtype = tensor.dtype;
      entry.shape.assign(ends.size(), 0);
      entries_.push_back({.fqn = tensor.name,
                          .path = {PathElement(tensor.name)},
                          .value = std::move(entry)});
    }
    auto& entry = std::get<TensorEntry>(entries_[it->second].value);
    if (entry.dtype != tensor.dtype || entry.shape.size() != ends.size()) {
      return absl::DataLossError(
          "two files hold parts of different type or rank");
    }
    for (size_t d = 0; d < ends.size(); ++d) {
      entry.shape[d] = std::max(entry.shape[d], ends[d]);
    }
    if (!CheckedVolume(entry.shape).has_value()) {
      return absl::DataLossError(
          absl::StrCat("shape ", ShapeToString(entry.shape), " is too large"));
    }
    entry.boxes.push_back(std::move(box));
    ChunkLocation& location = entry.locations.emplace_back();
    location.item = {file, header.data_offset + tensor.begin,
                     tensor.end - tensor.begin};
    location.located = true;
    location.payload_offset = location.item.offset;
    return absl::OkStatus();
  }

  std::vector<CheckpointEntry> entries_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};

using WeightMap = absl::flat_hash_map<std::string, std::string>;

// Every name of the index must be in the file that the index says.
absl::Status CheckIndex(
    const WeightMap& weight_map, const std::vector<std::string>& files,
    const std::vector<absl::flat_hash_set<std::string>>& names_in_file) {
  absl::flat_hash_map<absl::string_view, size_t> file_index;
  for (size_t i = 0; i < files.size(); ++i) file_index[files[i]] = i;
  for (const auto& [name, file] : weight_map) {
    if (!names_in_file[file_index[file]].contains(name)) {
      return absl::DataLossError(absl::StrCat(
          "the index says that ", name, " is in ", file, ", which lacks it"));
    }
  }
  return absl::OkStatus();
}

void AddMetadata(SafetensorsHeader& header, CheckpointParts& parts) {
  bool has_sharding_info = false;
  for (const auto& [key, value] : header.metadata) {
    has_sharding_info = has_sharding_info || key == kShardingInfoKey;
  }
  for (auto& [key, value] : header.metadata) {
    if (key == kShardingInfoKey) continue;
    if (has_sharding_info && key == kShardingVersionKey) continue;
    const auto known =
        std::find_if(parts.metadata.begin(), parts.metadata.end(),
                     [&](const auto& pair) { return pair.first == key; });
    if (known == parts.metadata.end()) {
      parts.metadata.emplace_back(key, std::move(value));
    } else if (known->second != value &&
               std::find(parts.metadata_conflicts.begin(),
                         parts.metadata_conflicts.end(),
                         key) == parts.metadata_conflicts.end()) {
      parts.metadata_conflicts.push_back(key);
    }
  }
}

absl::StatusOr<CheckpointParts> OpenFiles(FileSystem& fs, std::string directory,
                                          std::vector<std::string> names,
                                          const WeightMap* weight_map,
                                          const OpenOptions& options) {
  CheckpointParts parts;
  parts.format = Format::kSafetensors;
  parts.files =
      std::make_unique<SourceFiles>(fs, directory, names, options.direct,
                                    /*follow_symlinks=*/true);
  Collector collector;
  std::vector<absl::flat_hash_set<std::string>> names_in_file(
      weight_map != nullptr ? names.size() : 0);
  for (uint32_t i = 0; i < names.size(); ++i) {
    DCP_ASSIGN_OR_RETURN(const File file, parts.files->Get(i));
    FileReader reader(fs, file, 0, file.size);
    absl::StatusOr<SafetensorsHeader> header =
        ReadSafetensorsHeader(file.size, reader.read_at());
    if (!header.ok()) {
      return Annotate(header.status(), parts.files->PathOf(i));
    }
    DCP_RETURN_IF_ERROR(
        Annotate(collector.Add(i, *header), parts.files->PathOf(i)));
    if (weight_map != nullptr) {
      for (const SafetensorsTensor& tensor : header->tensors) {
        names_in_file[i].insert(tensor.name);
      }
    }
    AddMetadata(*header, parts);
  }
  parts.properties = parts.metadata;
  if (!parts.metadata_conflicts.empty()) {
    parts.properties.emplace_back(
        "metadata that differs between files",
        absl::StrJoin(parts.metadata_conflicts, ", "));
  }
  if (weight_map != nullptr) {
    DCP_RETURN_IF_ERROR(
        Annotate(CheckIndex(*weight_map, names, names_in_file), directory));
  }
  absl::StatusOr<std::vector<CheckpointEntry>> entries =
      std::move(collector).Finish();
  if (!entries.ok()) return Annotate(entries.status(), directory);
  parts.entries = *std::move(entries);
  return parts;
}

}  // namespace

absl::StatusOr<CheckpointParts> OpenSafetensorsFile(
    FileSystem& fs, absl::string_view path, const OpenOptions& options) {
  return OpenFiles(fs, ParentDirectory(path), {std::string(BaseName(path))},
                   nullptr, options);
}

absl::StatusOr<CheckpointParts> OpenSafetensorsDirectory(
    FileSystem& fs, absl::string_view directory, const OpenOptions& options) {
  DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> listing,
                       fs.List(directory));
  std::vector<std::string> names;
  std::vector<std::string> indices;
  for (const DirectoryEntry& entry : listing) {
    if (absl::EndsWith(entry.name, kIndexSuffix)) indices.push_back(entry.name);
    if (absl::EndsWith(entry.name, ".safetensors")) names.push_back(entry.name);
  }
  if (indices.empty()) {
    return OpenFiles(fs, std::string(directory), std::move(names), nullptr,
                     options);
  }
  if (indices.size() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, ": several models: ", indices[0], ", ",
                     indices[1], "; give one file"));
  }
  const std::string index_path = JoinPath(directory, indices[0]);
  DCP_ASSIGN_OR_RETURN(const std::string json,
                       ReadFile(fs, index_path, kMaxSafetensorsHeaderBytes,
                                /*follow_symlinks=*/true));
  absl::StatusOr<WeightMap> weight_map = ParseSafetensorsIndex(AsBytes(json));
  if (!weight_map.ok()) return Annotate(weight_map.status(), index_path);
  absl::flat_hash_set<std::string> wanted;
  for (const auto& [name, file] : *weight_map) wanted.insert(file);
  names.assign(wanted.begin(), wanted.end());
  std::sort(names.begin(), names.end());
  return OpenFiles(fs, std::string(directory), std::move(names), &*weight_map,
                   options);
}

}  // namespace dcp
