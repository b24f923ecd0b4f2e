#include "dcp/checkpoint/litter.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/open/dcp_opener.h"
#include "dcp/checkpoint/open/digests.h"
#include "dcp/checkpoint/write/destination_names.h"
#include "dcp/format/dcp_metadata.h"

namespace dcp {
namespace {

class Search {
 public:
  Search(FileSystem& fs, int64_t before_ns, const std::stop_token& stop)
      : fs_(fs), before_ns_(before_ns), stop_(stop) {}

  absl::Status Run(absl::string_view path) {
    DCP_ASSIGN_OR_RETURN(litter_.uploads, fs_.ListHidden(path));
    std::erase_if(litter_.uploads, [this](const HiddenFile& upload) {
      return upload.begun_ns >= before_ns_;
    });
    folders_.push_back(WithoutTrailingSlashes(path));
    while (!folders_.empty()) {
      DCP_RETURN_IF_ERROR(CheckStop(stop_, "folders were listed"));
      const std::string folder = std::move(folders_.back());
      folders_.pop_back();
      DCP_RETURN_IF_ERROR(LookInto(folder));
    }
    std::sort(litter_.files.begin(), litter_.files.end(),
              [](const UnnamedFile& a, const UnnamedFile& b) {
                return a.path < b.path;
              });
    return absl::OkStatus();
  }

  Litter TakeLitter() { return std::move(litter_); }

 private:
  absl::Status LookInto(const std::string& folder) {
    absl::StatusOr<std::vector<DirectoryEntry>> entries = fs_.List(folder);
    if (absl::IsNotFound(entries.status())) return absl::OkStatus();
    DCP_RETURN_IF_ERROR(entries.status());
    num_seen_ += entries->size();
    if (num_seen_ > kMaxFiles) {
      return absl::ResourceExhaustedError(
          absl::StrCat(folder, ": more than ", kMaxFiles,
                       " files were seen; name a folder further down"));
    }
    // The digests of safetensors belong to weights, not to an index.
    const bool has_weights = std::any_of(
        entries->begin(), entries->end(), [](const DirectoryEntry& entry) {
          return BelongsToSafetensors(entry.name) && !IsDigestsName(entry.name);
        });
    std::vector<std::string> candidates;
    bool has_rank_index = false;
    for (const DirectoryEntry& entry : *entries) {
      if (has_weights && entry.name == DigestsName("")) continue;
      if (entry.kind == FileKind::kDirectory) {
        folders_.push_back(JoinPath(folder, entry.name));
      } else if (IsDataFileName(entry.name) || IsDigestsName(entry.name)) {
        candidates.push_back(entry.name);
      }
      has_rank_index = has_rank_index || IsRankIndexName(entry.name);
    }
    if (candidates.empty() || has_rank_index) return absl::OkStatus();
    return AddUnnamed(folder, candidates);
  }

  absl::Status AddUnnamed(const std::string& folder,
                          const std::vector<std::string>& candidates) {
    const absl::StatusOr<absl::flat_hash_set<std::string>> named =
        NamedIn(JoinPath(folder, kDcpMetadataName));
    if (!named.ok()) {
      litter_.unclear.push_back(
          absl::StrCat(folder, ": ", named.status().message()));
      return absl::OkStatus();
    }
    for (const std::string& name : candidates) {
      if (named->contains(name)) continue;
      const std::string path = JoinPath(folder, name);
      const absl::StatusOr<FileInfo> info = fs_.Stat(path);
      if (absl::IsNotFound(info.status())) continue;
      DCP_RETURN_IF_ERROR(info.status());
      if (info->modified_ns >= before_ns_) continue;
      litter_.files.push_back({path, info->size, info->modified_ns});
    }
    return absl::OkStatus();
  }

  // The files that an index needs; none if there is no index.
  absl::StatusOr<absl::flat_hash_set<std::string>> NamedIn(
      const std::string& path) {
    absl::StatusOr<std::string> bytes =
        ReadFile(fs_, path, kMaxMetadataBytes, /*follow_symlinks=*/true, stop_);
    absl::flat_hash_set<std::string> named;
    if (absl::IsNotFound(bytes.status())) return named;
    DCP_RETURN_IF_ERROR(bytes.status());
    DCP_ASSIGN_OR_RETURN(const Metadata metadata,
                         ParseDcpMetadata(AsBytes(*bytes)));
    named.insert(metadata.files.begin(), metadata.files.end());
    named.insert(DigestsName(metadata.save_id));
    return named;
  }

  FileSystem& fs_;
  const int64_t before_ns_;
  const std::stop_token& stop_;
  std::vector<std::string> folders_;  // still to be listed
  uint64_t num_seen_ = 0;
  Litter litter_;
};

}  // namespace

absl::StatusOr<Litter> FindLitter(FileSystem& fs, absl::string_view path,
                                  int64_t before_ns,
                                  const std::stop_token& stop) {
  if (fs.TraitsOf(path).has_rename) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " is not in an object store; on a file system the next writer to a "
        "destination removes what killed writers left there"));
  }
  Search search(fs, before_ns, stop);
  DCP_RETURN_IF_ERROR(search.Run(path));
  return search.TakeLitter();
}

absl::Status RemoveLitter(FileSystem& fs, const Litter& litter,
                          const std::stop_token& stop) {
  absl::Status status;
  for (const HiddenFile& upload : litter.uploads) {
    DCP_RETURN_IF_ERROR(CheckStop(stop, "litter was removed"));
    status.Update(fs.RemoveHidden(upload));
  }
  for (const UnnamedFile& file : litter.files) {
    DCP_RETURN_IF_ERROR(CheckStop(stop, "litter was removed"));
    status.Update(fs.Remove(file.path));
  }
  return status;
}

}  // namespace dcp
