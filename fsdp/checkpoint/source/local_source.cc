// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/source/local_source.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/source_files.h"
#include "fsdp/checkpoint/source/default_file_system.h"

namespace fsdp {

absl::StatusOr<std::unique_ptr<LocalSource>> LocalSource::Open(
    dcp::FileSystem* file_system, const std::string& path, bool verify,
    const std::optional<dcp::MapRequest>& map) {
  dcp::FileSystem& fs = FileSystemOr(file_system);
  dcp::OpenOptions options;
  if (map.has_value()) {
    DCP_ASSIGN_OR_RETURN(options.map, dcp::FindMap(fs, path, *map));
  }
  DCP_ASSIGN_OR_RETURN(std::unique_ptr<dcp::Checkpoint> checkpoint,
                       dcp::Checkpoint::Open(fs, path, options));
  for (const dcp::SourceLoss& loss : checkpoint->losses()) {
    DCP_LOG(kWarning) << "event=checkpoint_lacks path=" << path
                      << " what=" << loss.text;
  }
  return std::unique_ptr<LocalSource>(
      new LocalSource(fs, std::move(checkpoint), verify));
}

// Judges by the first file. Direct reads were chosen for it if the page cache
// does not have it.
std::string LocalSource::CachedAs() {
  dcp::SourceFiles& files = checkpoint_->files();
  if (files.names().empty() || !files.traits().has_rename) return "";
  const absl::StatusOr<dcp::File> file = files.Get(0);
  if (!file.ok() || file->direct()) return "";
  const std::optional<dcp::FileInfo> info = files.OpenedAs(0);
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string host;
  if (!info.has_value() || !(boot >> host)) return "";
  return absl::StrCat(host, ":", info->device, ":", info->inode);
}

std::optional<StoredEntry> LocalSource::Find(absl::string_view name) const {
  const std::optional<uint32_t> entry = checkpoint_->Find(name);
  if (!entry.has_value()) return std::nullopt;
  const dcp::TensorEntry* tensor = checkpoint_->entries()[*entry].tensor();
  if (tensor == nullptr) return StoredEntry{};
  return StoredEntry{.is_tensor = true,
                     .dtype = tensor->dtype,
                     .shape = tensor->shape,
                     .made_of = checkpoint_->SourceNames(*entry)};
}

absl::StatusOr<absl::flat_hash_map<std::string, dcp::Value>>
LocalSource::ReadObjects(const absl::flat_hash_set<std::string>& names,
                         std::stop_token stop) {
  std::vector<uint32_t> entries;
  for (uint32_t i = 0; i < checkpoint_->entries().size(); ++i) {
    const dcp::CheckpointEntry& entry = checkpoint_->entries()[i];
    if (names.contains(entry.fqn) && entry.object() != nullptr) {
      entries.push_back(i);
    }
  }
  DCP_RETURN_IF_ERROR(checkpoint_->Locate(entries, stop));
  absl::flat_hash_map<std::string, dcp::Value> values;
  for (const uint32_t i : entries) {
    const dcp::CheckpointEntry& entry = checkpoint_->entries()[i];
    DCP_RETURN_IF_ERROR(dcp::Annotate(entry.object()->unreadable, entry.fqn));
    if (!entry.object()->tensors.empty()) {
      return absl::UnimplementedError(
          absl::StrCat(entry.fqn, " is an object that holds tensors"));
    }
    values[entry.fqn] = entry.object()->value;
  }
  return values;
}

absl::Status LocalSource::CheckTies(const dcp::TieParts& parts,
                                    const ReadOptions& options) {
  return dcp::CheckTies(
      fs_, *checkpoint_,
      {.memory_bytes = std::max(options.memory_bytes, dcp::kMinMemoryBytes),
       .stop = options.stop,
       .parts = parts});
}

absl::Status LocalSource::ReadTensors(absl::Span<const dcp::LoadTensor> tensors,
                                      const ReadOptions& options) {
  return dcp::Load(fs_, *checkpoint_, tensors,
                   {.memory_bytes = options.memory_bytes,
                    .stop = options.stop,
                    .stats = options.stats,
                    .verify = verify_,
                    .check_ties = false});
}

}  // namespace fsdp
