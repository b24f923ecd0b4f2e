// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/formats/safetensors_opener.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/error_place.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/format/safetensors/safetensors.h"
#include "dcp/plan/chunk_index.h"

namespace dcp {
namespace {

// The keys that DCP's Hugging Face writer adds about shards.
constexpr absl::string_view kShardingInfoKey = "DCP_SHARDING_INFO";
constexpr absl::string_view kShardingVersionKey = "DCP_VERSION";

// Gathers tensors from several files into entries. If parts do not make a
// whole, that becomes the entry's problem, so that the others can be read.
class Collector {
 public:
  // `model` must outlive it.
  explicit Collector(const ModelFiles& model)
      : model_(model), indexed_(model) {}

  absl::Status Add(uint32_t file, const SafetensorsHeader& header) {
    for (const SafetensorsTensor& tensor : header.tensors) {
      DCP_RETURN_IF_ERROR(
          Annotate(AddTensor(file, header, tensor), tensor.name));
    }
    return absl::OkStatus();
  }

  // Shapes are known once all shards are; only then can coverage be checked.
  absl::Status Finish(const std::stop_token& stop, CheckpointParts& parts) && {
    DCP_RETURN_IF_ERROR(indexed_.CheckAll());
    for (CheckpointEntry& entry : entries_) {
      DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
      auto& tensor = std::get<TensorEntry>(entry.value);
      if (tensor.problem.ok()) tensor.problem = CheckWhole(entry.fqn, tensor);
      if (tensor.problem.ok()) continue;
      parts.properties.emplace_back("unreadable", tensor.problem.message());
    }
    if (!indexed_.surplus().empty()) {
      parts.losses.push_back(SurplusLoss(indexed_.surplus()));
    }
    parts.entries = std::move(entries_);
    return absl::OkStatus();
  }

 private:
  absl::Status AddTensor(uint32_t file, const SafetensorsHeader& header,
                         const SafetensorsTensor& tensor) {
    const auto saved = header.saved_offsets.find(tensor.name);
    const bool is_part = saved != header.saved_offsets.end();
    if (!indexed_.Take(tensor.name, file, is_part)) return absl::OkStatus();
    Box box = WholeBox(tensor.shape);
    if (is_part) box.offsets = saved->second;
    const auto [it, is_new] = by_name_.emplace(tensor.name, entries_.size());
    if (is_new) {
      TensorEntry entry;
      entry.dtype = tensor.dtype;
      entry.shape.assign(box.sizes.size(), 0);
      entries_.push_back({.fqn = tensor.name,
                          .path = {PathElement(tensor.name)},
                          .value = std::move(entry)});
    }
    auto& entry = std::get<TensorEntry>(entries_[it->second].value);
    if (entry.dtype != tensor.dtype || entry.shape.size() != box.sizes.size()) {
      entry.problem = absl::DataLossError(
          absl::StrCat(tensor.name, " is ", TorchName(entry.dtype), " of ",
                       entry.shape.size(), " dimensions in ", FirstFile(entry),
                       ", and ", TorchName(tensor.dtype), " of ",
                       box.sizes.size(), " in ", model_.names[file]));
      return absl::OkStatus();
    }
    DCP_RETURN_IF_ERROR(Stretch(box, entry));
    entry.boxes.push_back(std::move(box));
    ChunkLocation& location = entry.locations.emplace_back();
    location.item = {file, header.data_offset + tensor.begin,
                     tensor.end - tensor.begin};
    location.located = true;
    location.payload_offset = location.item.offset;
    return absl::OkStatus();
  }

  // Makes the shape of `entry` large enough for a part at `box`.
  static absl::Status Stretch(const Box& box, TensorEntry& entry) {
    for (size_t d = 0; d < box.sizes.size(); ++d) {
      int64_t end;
      if (box.offsets[d] < 0 ||
          __builtin_add_overflow(box.offsets[d], box.sizes[d], &end)) {
        return absl::DataLossError(
            absl::StrCat("DCP_SHARDING_INFO has the impossible offset ",
                         box.offsets[d], " for a size of ", box.sizes[d]));
      }
      entry.shape[d] = std::max(entry.shape[d], end);
    }
    const std::optional<int64_t> volume = CheckedVolume(entry.shape);
    if (volume.has_value() &&
        CheckedMul(static_cast<uint64_t>(*volume), ElementSize(entry.dtype))) {
      return absl::OkStatus();
    }
    return absl::DataLossError(
        absl::StrCat("shape ", ShapeToString(entry.shape), " is too large"));
  }

  absl::Status CheckWhole(absl::string_view name,
                          const TensorEntry& entry) const {
    absl::Status covered = CheckCoverage(entry.shape, entry.boxes);
    if (covered.ok()) return covered;
    const auto is_whole = [&](const Box& box) {
      return box == WholeBox(entry.shape);
    };
    if (std::all_of(entry.boxes.begin(), entry.boxes.end(), is_whole)) {
      return InTwoFilesError(name, FirstFile(entry),
                             model_.names[entry.locations[1].item.file]);
    }
    return Annotate(covered, absl::StrCat(name, ", whose first part is in ",
                                          FirstFile(entry)));
  }

  const std::string& FirstFile(const TensorEntry& entry) const {
    return model_.names[entry.locations[0].item.file];
  }

  const ModelFiles& model_;
  IndexedTensors indexed_;
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

bool IsChecksum(absl::string_view text) {
  return text.size() >= 8 &&
         std::all_of(text.begin(), text.end(), absl::ascii_isxdigit);
}

// Unimplemented for a file with published differences between weights: nothing
// but bytes, and each tensor's checksum under the tensor's name. Their index
// has this too, but a file may be given without it.
absl::Status CheckIsNoDelta(const SafetensorsHeader& header) {
  absl::flat_hash_set<absl::string_view> summed;
  for (const auto& [key, value] : header.metadata) {
    if (IsChecksum(value)) summed.insert(key);
  }
  const bool is_delta =
      !header.tensors.empty() &&
      std::all_of(header.tensors.begin(), header.tensors.end(),
                  [&](const SafetensorsTensor& tensor) {
                    return tensor.dtype == DType::kUInt8 &&
                           tensor.shape.size() == 1 &&
                           summed.contains(tensor.name);
                  });
  if (!is_delta) return absl::OkStatus();
  return absl::UnimplementedError(
      "the file holds compressed differences from another version of the "
      "weights, each with its checksum, and no weights; give the path of a "
      "version that is not made of differences");
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
  std::vector<SafetensorsHeader> headers(model.names.size());
  DCP_RETURN_IF_ERROR(
      parts.files->ForEach(stop, [&](uint32_t i) -> absl::Status {
        DCP_ASSIGN_OR_RETURN(const File file, parts.files->Get(i));
        FileReader reader(fs, file, 0, file.size, stop);
        absl::StatusOr<SafetensorsHeader> header =
            ReadSafetensorsHeader(file.size, reader.read_at());
        if (!header.ok()) {
          return Annotate(header.status(), parts.files->FullPath(i));
        }
        headers[i] = *std::move(header);
        return absl::OkStatus();
      }));
  Collector collector(model);
  for (uint32_t i = 0; i < model.names.size(); ++i) {
    DCP_RETURN_IF_ERROR(
        Annotate(CheckIsNoDelta(headers[i]), parts.files->FullPath(i)));
    DCP_RETURN_IF_ERROR(
        Annotate(collector.Add(i, headers[i]), parts.files->FullPath(i)));
    if (!headers[i].damage.empty()) {
      parts.damages.push_back(
          WithPlace(absl::DataLossError(absl::StrCat(
                        parts.files->FullPath(i), ": ", headers[i].damage,
                        "; names, shapes and dtypes may be wrong")),
                    {.file = model.names[i]}));
    }
    AddDigests(headers[i], model.names[i], parts);
    AddMetadata(headers[i], parts);
  }
  parts.properties = parts.metadata;
  for (const absl::Status& damage : parts.damages) {
    parts.properties.emplace_back("damaged", damage.message());
  }
  if (!parts.metadata_conflicts.empty()) {
    parts.losses.push_back(
        {.part = StatePart::kModel,
         .text = absl::StrCat("the __metadata__ of the files differs in ",
                              absl::StrJoin(parts.metadata_conflicts, ", "),
                              ": the first file by name counts")});
  }
  const absl::Status finished = std::move(collector).Finish(stop, parts);
  // A damaged name is not in the index.
  if (absl::IsDataLoss(finished) && !parts.damages.empty()) {
    return parts.damages[0];
  }
  DCP_RETURN_IF_ERROR(finished);
  return parts;
}

}  // namespace dcp
