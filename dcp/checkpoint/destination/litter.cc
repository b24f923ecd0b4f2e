// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/destination/litter.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/base/parallel_for.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/format/index/dcp_metadata.h"

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
    DCP_ASSIGN_OR_RETURN(const std::vector<StoredFile> files,
                         fs_.ListBelow(WithoutTrailingSlashes(path)));
    std::map<std::string, std::vector<StoredFile>> folders;
    for (const StoredFile& file : files) {
      folders[ParentDirectory(file.path)].push_back(file);
    }
    for (const auto& [folder, inside] : folders) {
      DCP_RETURN_IF_ERROR(CheckStop(stop_, "folders were looked into"));
      LookInto(folder, inside);
    }
    std::sort(litter_.files.begin(), litter_.files.end(),
              [](const StoredFile& a, const StoredFile& b) {
                return a.path < b.path;
              });
    return absl::OkStatus();
  }

  Litter TakeLitter() { return std::move(litter_); }

 private:
  void LookInto(const std::string& folder,
                const std::vector<StoredFile>& files) {
    // Safetensors digests belong to weights, not to an index.
    const auto is_weights = [](const StoredFile& file) {
      const absl::string_view name = BaseName(file.path);
      return BelongsToSafetensors(name) && !IsDigestsName(name);
    };
    const bool has_weights =
        std::any_of(files.begin(), files.end(), is_weights);
    std::vector<StoredFile> candidates;
    for (const StoredFile& file : files) {
      const absl::string_view name = BaseName(file.path);
      if (IsRankIndexName(name)) return;
      if (has_weights && name == DigestsName("")) continue;
      const bool is_young = file.modified_ns >= before_ns_;
      if (!is_young && (IsDataFileName(name) || IsDigestsName(name))) {
        candidates.push_back(file);
      }
    }
    if (candidates.empty()) return;
    const absl::StatusOr<absl::flat_hash_set<std::string>> named =
        FilesInIndex(JoinPath(folder, kDcpMetadataName));
    if (!named.ok()) {
      litter_.unclear.push_back(
          absl::StrCat(folder, ": ", named.status().message()));
      return;
    }
    for (const StoredFile& file : candidates) {
      if (named->contains(BaseName(file.path))) continue;
      litter_.files.push_back(file);
    }
  }

  // The files that an index needs; none if there is no index.
  absl::StatusOr<absl::flat_hash_set<std::string>> FilesInIndex(
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
  Litter litter_;
};

}  // namespace

absl::StatusOr<Litter> FindLitter(FileSystem& fs, absl::string_view path,
                                  int64_t before_ns,
                                  const std::stop_token& stop) {
  if (fs.TraitsAt(path).has_rename) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " is not in an object store; on a file system the next writer to a "
        "destination removes the files that killed writers left"));
  }
  Search search(fs, before_ns, stop);
  DCP_RETURN_IF_ERROR(search.Run(path));
  return search.TakeLitter();
}

absl::Status RemoveLitter(FileSystem& fs, const Litter& litter,
                          const std::stop_token& stop) {
  const size_t num_uploads = litter.uploads.size();
  std::vector<absl::Status> removed(num_uploads + litter.files.size());
  DCP_RETURN_IF_ERROR(
      ParallelFor(removed.size(), kFilesAtOnce, [&](size_t i) -> absl::Status {
        DCP_RETURN_IF_ERROR(CheckStop(stop, "litter was removed"));
        removed[i] = i < num_uploads
                         ? fs.RemoveHidden(litter.uploads[i])
                         : fs.Remove(litter.files[i - num_uploads].path);
        return absl::OkStatus();
      }));
  for (const absl::Status& status : removed) DCP_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace dcp
