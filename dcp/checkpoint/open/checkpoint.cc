#include "dcp/checkpoint/open/checkpoint.h"

#include <numeric>
#include <optional>

#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/open/dialects/directory_opener.h"
#include "dcp/checkpoint/open/dialects/no_checkpoint.h"
#include "dcp/checkpoint/open/model_files.h"
#include "dcp/checkpoint/open/model_opener.h"

namespace dcp {
namespace {

absl::StatusOr<CheckpointParts> OpenSingleFile(FileSystem& fs,
                                               absl::string_view path,
                                               const OpenOptions& options,
                                               const std::stop_token& stop) {
  DCP_RETURN_IF_ERROR(CheckFileName(fs, path, stop));
  if (!IsWeightIndexName(path)) {
    return OpenModel(fs, OneModelFile(path), options, stop);
  }
  DCP_ASSIGN_OR_RETURN(const ModelFiles model, ReadWeightIndex(fs, path, stop));
  return OpenModel(fs, model, options, stop);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(
    FileSystem& fs, absl::string_view path, const OpenOptions& options,
    const std::stop_token& stop) {
  DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
  DCP_ASSIGN_OR_RETURN(const FileInfo info, fs.Stat(path));
  // The path that the user gives may be a link; links inside a directory are
  // not followed.
  const bool is_directory =
      info.kind == FileKind::kDirectory ||
      (info.kind == FileKind::kSymlink && fs.List(path).ok());
  absl::StatusOr<CheckpointParts> parts =
      is_directory ? OpenDirectory(fs, path, options, stop)
                   : OpenSingleFile(fs, path, options, stop);
  if (!parts.ok()) return parts.status();
  parts->check_crcs = options.check_crcs;
  return std::unique_ptr<Checkpoint>(
      new Checkpoint(fs, path, *std::move(parts), options));
}

void Checkpoint::IndexNames() {
  by_name_.reserve(parts_.entries.size());
  for (uint32_t i = 0; i < parts_.entries.size(); ++i) {
    by_name_[parts_.entries[i].fqn] = i;
  }
}

std::optional<uint32_t> Checkpoint::Find(absl::string_view fqn) const {
  const auto it = by_name_.find(fqn);
  if (it == by_name_.end()) return std::nullopt;
  return it->second;
}

absl::Status Checkpoint::Locate(absl::Span<const uint32_t> entries,
                                std::stop_token stop,
                                const ItemVisitor& visitor) {
  return LocateChunks(ChunksOfEntries(parts_, entries), std::move(stop),
                      visitor);
}

absl::Status Checkpoint::LocateChunks(absl::Span<const EntryChunk> chunks,
                                      std::stop_token stop,
                                      const ItemVisitor& visitor) {
  return LocateItems(fs_, parts_, chunks, locate_memory_bytes_, stop, progress_,
                     visitor);
}

absl::Status Checkpoint::LocateAll(std::stop_token stop,
                                   const ItemVisitor& visitor) {
  std::vector<uint32_t> all(parts_.entries.size());
  std::iota(all.begin(), all.end(), 0);
  return Locate(all, stop, visitor);
}

}  // namespace dcp
