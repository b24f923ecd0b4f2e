// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/rank_indices.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/formats/item_locator.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/tensor/metadata.h"

namespace dcp {
namespace {

constexpr size_t kMaxRanksShown = 10;

// How many ranks have an index. NotFound if one before the last has none.
absl::StatusOr<int64_t> CountRanks(FileSystem& fs,
                                   absl::string_view directory) {
  DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                       fs.List(directory));
  absl::flat_hash_set<int64_t> ranks;
  int64_t last = -1;
  for (const DirectoryEntry& entry : entries) {
    const std::optional<int64_t> rank = ParseRankMetadataName(entry.name);
    if (!rank.has_value()) continue;
    ranks.insert(*rank);
    last = std::max(last, *rank);
  }
  std::vector<std::string> missing;
  for (int64_t rank = 0; rank < last && missing.size() <= kMaxRanksShown;
       ++rank) {
    if (!ranks.contains(rank)) missing.push_back(absl::StrCat(rank));
  }
  if (missing.empty()) return last + 1;
  if (missing.size() > kMaxRanksShown) missing.back() = "...";
  return absl::NotFoundError(absl::StrCat(
      directory, ": the indices __{rank}", kDcpMetadataName,
      " of these ranks are missing: ", absl::StrJoin(missing, ", "),
      "; the save did not finish, or each machine wrote to its own disk; in "
      "that case, copy their files together"));
}

bool IsWhole(const TensorStorageMetadata& tensor) {
  return tensor.chunks.size() == 1 &&
         tensor.chunks[0].box == WholeBox(tensor.size);
}

class RankIndices {
 public:
  RankIndices(FileSystem& fs, absl::string_view directory,
              const OpenOptions& options, const std::stop_token& stop)
      : fs_(fs), directory_(directory), options_(options), stop_(stop) {}

  absl::StatusOr<CheckpointParts> Run(int64_t num_ranks) {
    DCP_RETURN_IF_ERROR(ReadAll(num_ranks));
    parts_.format = Format::kDcp;
    parts_.dialect = Dialect::kDcp;
    parts_.files = std::make_unique<SourceFiles>(
        fs_, std::string(directory_), std::move(files_), options_.direct,
        /*follow_symlinks=*/false);
    parts_.check_index = options_.check_index;
    parts_.properties.emplace_back("ranks", absl::StrCat(num_ranks));
    DCP_RETURN_IF_ERROR(AddWhole());
    DCP_RETURN_IF_ERROR(AddShards());
    DCP_ASSIGN_OR_RETURN(parts_.entries, std::move(collector_).Finish());
    if (!parts_.flattened) {
      for (CheckpointEntry& entry : parts_.entries) entry.path.clear();
    }
    return std::move(parts_);
  }

 private:
  struct Stored {
    int64_t rank = 0;
    MetadataEntry entry;
  };

  absl::Status ReadAll(int64_t num_ranks) {
    std::vector<std::string> names;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      names.push_back(RankMetadataName(rank));
    }
    std::vector<Metadata> all(names.size());
    const SourceFiles indices(fs_, std::string(directory_), std::move(names),
                              DirectMode::kOff, /*follow_symlinks=*/false);
    DCP_RETURN_IF_ERROR(indices.ForEach(stop_, [&](uint32_t i) -> absl::Status {
      DCP_ASSIGN_OR_RETURN(all[i],
                           ReadDcpIndex(fs_, indices.FullPath(i), stop_));
      return absl::OkStatus();
    }));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      Add(static_cast<int64_t>(rank), std::move(all[rank]));
    }
    return absl::OkStatus();
  }

  void Add(int64_t rank, Metadata metadata) {
    std::vector<uint32_t> numbers;
    for (std::string& name : metadata.files) {
      const auto [it, is_new] =
          numbers_.emplace(name, static_cast<uint32_t>(files_.size()));
      if (is_new) files_.push_back(std::move(name));
      numbers.push_back(it->second);
    }
    parts_.flattened = parts_.flattened && metadata.has_planner_data;
    if (!metadata.save_id.empty()) {
      parts_.digest_files.push_back(
          {.folder = "", .name = DigestsName(metadata.save_id)});
    }
    for (MetadataEntry& entry : metadata.entries) {
      if (PathToName(entry.path) != entry.fqn) {
        entry.path = {PathElement(entry.fqn)};
      }
      if (auto* tensor = std::get_if<TensorStorageMetadata>(&entry.value)) {
        for (ChunkStorageMetadata& chunk : tensor->chunks) {
          chunk.storage.file = numbers[chunk.storage.file];
        }
        if (!IsWhole(*tensor)) sharded_.insert(entry.fqn);
      } else {
        StorageInfo& item = std::get<BytesStorageMetadata>(entry.value).storage;
        item.file = numbers[item.file];
      }
      stored_.push_back({rank, std::move(entry)});
    }
  }

  // Whether a rank has only a part of the tensor with this name.
  bool IsSharded(const MetadataEntry& entry) const {
    return sharded_.contains(entry.fqn) &&
           std::holds_alternative<TensorStorageMetadata>(entry.value);
  }

  // Adds values that ranks have whole; they are located, because they are
  // compared.
  absl::Status AddWhole() {
    std::vector<int64_t> ranks;
    for (Stored& stored : stored_) {
      if (IsSharded(stored.entry)) continue;
      absl::StatusOr<CheckpointEntry> entry = MakeIndexEntry(stored.entry);
      if (!entry.ok()) return Annotate(entry.status(), directory_);
      parts_.entries.push_back(*std::move(entry));
      ranks.push_back(stored.rank);
    }
    std::vector<uint32_t> all(parts_.entries.size());
    for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    DCP_RETURN_IF_ERROR(LocateItems(fs_, parts_, ChunksInEntries(parts_, all),
                                    options_.locate_memory_bytes, stop_,
                                    options_.progress));
    for (size_t i = 0; i < ranks.size(); ++i) {
      CheckpointEntry& entry = parts_.entries[i];
      const StatePath path = entry.path;
      DCP_RETURN_IF_ERROR(Annotate(
          collector_.AddValue(path, ranks[i], std::move(entry)), directory_));
    }
    return absl::OkStatus();
  }

  absl::Status AddShards() {
    for (Stored& stored : stored_) {
      if (!IsSharded(stored.entry)) continue;
      auto& tensor = std::get<TensorStorageMetadata>(stored.entry.value);
      StateCollector::Part part;
      part.dtype = tensor.dtype;
      part.shape = std::move(tensor.size);
      for (ChunkStorageMetadata& chunk : tensor.chunks) {
        part.boxes.push_back(std::move(chunk.box));
        part.locations.emplace_back().item = chunk.storage;
      }
      DCP_RETURN_IF_ERROR(Annotate(
          collector_.AddPart(stored.entry.path, stored.rank, std::move(part)),
          directory_));
    }
    return absl::OkStatus();
  }

  FileSystem& fs_;
  const absl::string_view directory_;
  const OpenOptions& options_;
  const std::stop_token& stop_;
  CheckpointParts parts_;
  StateCollector collector_;
  std::vector<std::string> files_;
  absl::flat_hash_map<std::string, uint32_t> numbers_;  // in files_
  std::vector<Stored> stored_;                          // in all indices
  absl::flat_hash_set<std::string> sharded_;            // names of tensors
};

}  // namespace

absl::StatusOr<CheckpointParts> OpenRankIndices(FileSystem& fs,
                                                absl::string_view directory,
                                                const OpenOptions& options,
                                                const std::stop_token& stop) {
  if (options.rank >= 0) {
    const std::string name = RankMetadataName(options.rank);
    if (!fs.Stat(JoinPath(directory, name)).ok()) {
      return absl::NotFoundError(absl::StrCat(
          directory, ": rank ", options.rank, " has no index file ", name));
    }
    absl::StatusOr<CheckpointParts> parts =
        OpenDcp(fs, directory, name, options, stop);
    if (parts.ok() || !absl::IsDataLoss(parts.status())) return parts;
    return WithOptions(
        Annotate(parts.status(),
                 "one rank's index may have only a part of a tensor; without ",
                 ToText({"rank"}), ", all ranks' indices are read together"),
        {"rank"});
  }
  DCP_ASSIGN_OR_RETURN(const int64_t num_ranks, CountRanks(fs, directory));
  // With one rank, there is nothing to join.
  if (num_ranks == 1) {
    return OpenDcp(fs, directory, RankMetadataName(0), options, stop);
  }
  return RankIndices(fs, directory, options, stop).Run(num_ranks);
}

MaybeParts TryOpenRankIndices(const SourceDirectory& directory,
                              const OpenOptions& options,
                              const std::stop_token& stop) {
  const bool has_indices =
      std::any_of(directory.entries.begin(), directory.entries.end(),
                  [](const DirectoryEntry& entry) {
                    return ParseRankMetadataName(entry.name).has_value();
                  });
  if (!has_indices) return std::nullopt;
  return OpenRankIndices(*directory.fs, directory.path, options, stop);
}

}  // namespace dcp
