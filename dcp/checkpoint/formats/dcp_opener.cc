// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/formats/dcp_opener.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/format/index/dcp_metadata.h"
#include "dcp/plan/chunk_index.h"

namespace dcp {
namespace {

absl::StatusOr<TensorEntry> MakeTensorEntry(TensorStorageMetadata tensor) {
  TensorEntry entry;
  entry.dtype = tensor.dtype;
  entry.shape = std::move(tensor.size);
  entry.boxes.reserve(tensor.chunks.size());
  entry.locations.reserve(tensor.chunks.size());
  for (ChunkStorageMetadata& chunk : tensor.chunks) {
    entry.boxes.push_back(std::move(chunk.box));
    entry.locations.emplace_back().item = chunk.storage;
  }
  DCP_RETURN_IF_ERROR(CheckCoverage(entry.shape, entry.boxes));
  return entry;
}

}  // namespace

std::string RankMetadataName(int64_t rank) {
  return absl::StrCat("__", rank, kDcpMetadataName);
}

std::optional<int64_t> ParseRankMetadataName(absl::string_view name) {
  int64_t rank = 0;
  if (!absl::ConsumePrefix(&name, "__") ||
      !absl::ConsumeSuffix(&name, kDcpMetadataName) ||
      !absl::SimpleAtoi(name, &rank) || rank < 0 || rank >= kMaxRanks ||
      name != absl::StrCat(rank)) {
    return std::nullopt;
  }
  return rank;
}

absl::StatusOr<CheckpointEntry> MakeIndexEntry(MetadataEntry& from) {
  CheckpointEntry entry;
  if (auto* tensor = std::get_if<TensorStorageMetadata>(&from.value)) {
    absl::StatusOr<TensorEntry> made = MakeTensorEntry(std::move(*tensor));
    if (!made.ok()) return Annotate(made.status(), from.fqn);
    entry.value = *std::move(made);
  } else {
    ObjectEntry object;
    object.item = std::get<BytesStorageMetadata>(from.value).storage;
    entry.value = std::move(object);
  }
  entry.fqn = std::move(from.fqn);
  entry.path = std::move(from.path);
  return entry;
}

absl::StatusOr<Metadata> ReadDcpIndex(FileSystem& fs, absl::string_view path,
                                      const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const std::string bytes,
                       ReadFile(fs, path, kMaxMetadataBytes,
                                /*follow_symlinks=*/false, stop));
  absl::StatusOr<Metadata> metadata = ParseDcpMetadata(AsBytes(bytes));
  if (!metadata.ok()) return Annotate(metadata.status(), path);
  return metadata;
}

absl::StatusOr<CheckpointParts> OpenIndexedDcp(FileSystem& fs,
                                               absl::string_view directory,
                                               Metadata metadata,
                                               const OpenOptions& options,
                                               const std::stop_token& stop) {
  CheckpointParts parts;
  parts.format = Format::kDcp;
  parts.dialect = Dialect::kDcp;
  parts.flattened = metadata.has_planner_data;
  if (!metadata.version.empty()) {
    parts.properties.emplace_back("version", metadata.version);
  }
  if (!metadata.save_id.empty()) {
    parts.properties.emplace_back("save id", metadata.save_id);
    parts.digest_files.push_back(
        {.folder = "", .name = DigestsName(metadata.save_id)});
  }
  parts.files = std::make_unique<SourceFiles>(
      fs, std::string(directory), std::move(metadata.files), options.direct,
      /*follow_symlinks=*/false);
  parts.entries.reserve(metadata.entries.size());
  for (MetadataEntry& entry : metadata.entries) {
    DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
    DCP_ASSIGN_OR_RETURN(CheckpointEntry made, MakeIndexEntry(entry));
    parts.entries.push_back(std::move(made));
  }
  return parts;
}

absl::StatusOr<CheckpointParts> OpenDcp(FileSystem& fs,
                                        absl::string_view directory,
                                        absl::string_view metadata_name,
                                        const OpenOptions& options,
                                        const std::stop_token& stop) {
  const std::string path = JoinPath(directory, metadata_name);
  DCP_ASSIGN_OR_RETURN(Metadata metadata, ReadDcpIndex(fs, path, stop));
  absl::StatusOr<CheckpointParts> parts =
      OpenIndexedDcp(fs, directory, std::move(metadata), options, stop);
  if (!parts.ok()) return Annotate(parts.status(), path);
  return parts;
}

}  // namespace dcp
