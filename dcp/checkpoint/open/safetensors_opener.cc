#include "dcp/checkpoint/open/safetensors_opener.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/open/file_reader.h"
#include "dcp/format/safetensors.h"
#include "dcp/plan/chunk_index.h"

namespace dcp {
namespace {

// The keys that DCP's Hugging Face writer adds about its shards.
constexpr absl::string_view kShardingInfoKey = "DCP_SHARDING_INFO";
constexpr absl::string_view kShardingVersionKey = "DCP_VERSION";

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

  // Shapes are known once all shards are; only then can coverage be checked.
  absl::StatusOr<std::vector<CheckpointEntry>> Finish(
      const std::stop_token& stop) && {
    for (const CheckpointEntry& entry : entries_) {
      DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
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
            absl::StrCat("DCP_SHARDING_INFO has the impossible offset ",
                         box.offsets[d], " for a size of ", box.sizes[d]));
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
          "two files hold parts with different dtypes or numbers of "
          "dimensions");
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

void AddDigests(const SafetensorsHeader& header, const std::string& file,
                CheckpointParts& parts) {
  for (size_t i = 0; i < header.digests.size(); ++i) {
    const SafetensorsTensor& tensor = header.tensors[i];
    if (tensor.begin == tensor.end) continue;  // it has no bytes
    parts.digests.push_back({.file = file,
                             .offset = header.data_offset + tensor.begin,
                             .length = tensor.end - tensor.begin,
                             .digest = header.digests[i]});
  }
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

}  // namespace

absl::StatusOr<CheckpointParts> OpenSafetensors(FileSystem& fs,
                                                const ModelFiles& model,
                                                const OpenOptions& options,
                                                const std::stop_token& stop) {
  CheckpointParts parts;
  parts.format = Format::kSafetensors;
  parts.dialect = Dialect::kSafetensors;
  parts.files = std::make_unique<SourceFiles>(fs, model.directory, model.names,
                                              options.direct,
                                              /*follow_symlinks=*/true);
  parts.digest_files.push_back({.folder = "", .name = DigestsName("")});
  Collector collector;
  for (uint32_t i = 0; i < model.names.size(); ++i) {
    DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
    DCP_ASSIGN_OR_RETURN(const File file, parts.files->Get(i));
    FileReader reader(fs, file, 0, file.size, stop);
    absl::StatusOr<SafetensorsHeader> header =
        ReadSafetensorsHeader(file.size, reader.read_at());
    if (!header.ok()) {
      return Annotate(header.status(), parts.files->PathOf(i));
    }
    DCP_RETURN_IF_ERROR(
        Annotate(collector.Add(i, *header), parts.files->PathOf(i)));
    AddDigests(*header, model.names[i], parts);
    AddMetadata(*header, parts);
  }
  parts.properties = parts.metadata;
  if (!parts.metadata_conflicts.empty()) {
    parts.properties.emplace_back(
        "metadata that differs between files",
        absl::StrJoin(parts.metadata_conflicts, ", "));
  }
  absl::StatusOr<std::vector<CheckpointEntry>> entries =
      std::move(collector).Finish(stop);
  if (!entries.ok()) return Annotate(entries.status(), model.directory);
  parts.entries = *std::move(entries);
  DCP_RETURN_IF_ERROR(CheckAgainstIndex(model, parts));
  return parts;
}

}  // namespace dcp
