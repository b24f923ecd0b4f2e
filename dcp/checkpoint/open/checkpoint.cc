// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/open/checkpoint.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/files/hub_folder.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/checkpoint/formats/model_opener.h"
#include "dcp/checkpoint/lens/adapter_config.h"
#include "dcp/checkpoint/lens/quantization.h"
#include "dcp/checkpoint/mapped/mapped_names.h"
#include "dcp/checkpoint/open/directory_opener.h"
#include "dcp/checkpoint/open/no_checkpoint.h"
#include "dcp/checkpoint/open/recorded_digests.h"

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
    FileSystem& fs, absl::string_view given, const OpenOptions& options,
    const std::stop_token& stop) {
  DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
  DCP_ASSIGN_OR_RETURN(const std::string path, ResolveHubFolder(fs, given));
  const absl::StatusOr<FileInfo> info = fs.Stat(path);
  if (absl::IsNotFound(info.status())) {
    return WithHubAdvice(info.status(), path);
  }
  DCP_RETURN_IF_ERROR(info.status());
  // The path that the user gives may be a link; links inside a directory are
  // not followed.
  const bool is_directory =
      info->kind == FileKind::kDirectory ||
      (info->kind == FileKind::kSymlink && fs.List(path).ok());
  absl::StatusOr<CheckpointParts> parts =
      is_directory ? OpenDirectory(fs, path, options, stop)
                   : OpenSingleFile(fs, path, options, stop);
  if (!parts.ok()) return parts.status();
  DCP_RETURN_IF_ERROR(MarkQuantized(fs, path, *parts));
  parts->check_index = options.check_index;
  auto checkpoint =
      absl::WrapUnique(new Checkpoint(fs, path, *std::move(parts), options));
  if (options.check_index) DCP_RETURN_IF_ERROR(checkpoint->CheckIndex());
  if (options.map != nullptr) {
    const absl::Status mapped = checkpoint->Map(*options.map, stop);
    if (!mapped.ok()) return Annotate(mapped, path);
  }
  checkpoint->IndexNames();
  return checkpoint;
}

absl::Status Checkpoint::Map(const MapSpec& spec, const std::stop_token& stop) {
  std::vector<std::string> paths;
  for (const MeanTerm& term : spec.average) paths.push_back(term.path);
  if (!spec.adapter.empty()) {
    paths.push_back(AdapterTensors(fs_, spec.adapter));
  }
  std::vector<StoredEntries> others;
  for (const std::string& path : paths) {
    DCP_ASSIGN_OR_RETURN(others_.emplace_back(), Open(fs_, path, {}, stop));
    DCP_RETURN_IF_ERROR(others_.back()->LocateAll(stop));
    for (SourceLoss loss : others_.back()->losses()) {
      loss.text = absl::StrCat(path, ": ", loss.text);
      parts_.losses.push_back(std::move(loss));
    }
    others.push_back({.path = path,
                      .entries = others_.back()->entries(),
                      .files = &others_.back()->files()});
  }
  DCP_ASSIGN_OR_RETURN(
      mapped_,
      MapEntries(
          fs_, {.path = path_, .entries = stored_entries(), .files = &files()},
          others, spec, stop));
  return absl::OkStatus();
}

absl::Status Checkpoint::CheckUnchanged() const {
  DCP_RETURN_IF_ERROR(WithSide(files().CheckUnchanged(), ErrorSide::kSource));
  for (const auto& other : others_) {
    DCP_RETURN_IF_ERROR(other->CheckUnchanged());
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::CheckIndex() const {
  return damages().empty() ? absl::OkStatus() : damages()[0];
}

absl::Status Checkpoint::CheckRecordedIndex() {
  if (!recorded_index_.has_value()) {
    recorded_index_ = dcp::CheckRecordedIndex(fs_, path(), parts_);
  }
  return *recorded_index_;
}

absl::StatusOr<std::vector<ChunkDigest>> Checkpoint::ReadRecordedDigests()
    const {
  return dcp::ReadRecordedDigests(fs_, path(), parts_);
}

void Checkpoint::IndexNames() {
  by_name_.reserve(entries().size());
  for (uint32_t i = 0; i < entries().size(); ++i) {
    by_name_[entries()[i].fqn] = i;
  }
}

std::optional<uint32_t> Checkpoint::Find(absl::string_view fqn) const {
  const auto it = by_name_.find(fqn);
  if (it == by_name_.end()) return std::nullopt;
  return it->second;
}

std::string Checkpoint::SourceNames(uint32_t entry) const {
  if (!mapped_.has_value()) return "";
  std::vector<absl::string_view> names;
  for (const uint32_t i : mapped_->stored[entry]) {
    names.push_back(stored_entries()[i].fqn);
  }
  return ShortNameList(names);
}

std::string Checkpoint::NamesMade() const {
  if (!mapped_.has_value()) return "";
  std::vector<absl::string_view> names;
  for (const CheckpointEntry& entry : entries()) {
    if (entry.tensor() != nullptr) names.push_back(entry.fqn);
  }
  return dcp::NamesMade(*map_, names);
}

absl::Status Checkpoint::Locate(absl::Span<const uint32_t> entries,
                                std::stop_token stop,
                                const ItemVisitor& visitor) {
  return LocateChunks(StoredChunks(entries), std::move(stop), visitor);
}

std::vector<EntryChunk> Checkpoint::StoredChunks(
    absl::Span<const uint32_t> entries) const {
  if (!mapped_.has_value()) return ChunksInEntries(parts_, entries);
  std::vector<uint32_t> stored;
  for (const uint32_t i : entries) {
    stored.insert(stored.end(), mapped_->stored[i].begin(),
                  mapped_->stored[i].end());
  }
  std::sort(stored.begin(), stored.end());
  stored.erase(std::unique(stored.begin(), stored.end()), stored.end());
  return ChunksInEntries(parts_, stored);
}

absl::Status Checkpoint::LocateChunks(absl::Span<const EntryChunk> chunks,
                                      std::stop_token stop,
                                      const ItemVisitor& visitor) {
  return LocateItems(fs_, parts_, chunks, locate_memory_bytes_, stop, progress_,
                     visitor);
}

absl::Status Checkpoint::LocateAll(std::stop_token stop,
                                   const ItemVisitor& visitor) {
  std::vector<uint32_t> all(entries().size());
  std::iota(all.begin(), all.end(), 0);
  return Locate(all, stop, visitor);
}

}  // namespace dcp
