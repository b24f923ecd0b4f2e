// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/destination_place.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/checkpoint/open/directory_opener.h"

namespace dcp {
namespace {

// Whether `dst` is the source's file `name`, which is at `path`, or one of the
// folders that `name` goes through.
bool Holds(FileSystem& fs, absl::string_view dst, std::string path,
           absl::string_view name) {
  const auto num_folders = std::count(name.begin(), name.end(), '/');
  for (auto i = num_folders; i >= 0; --i) {
    if (LeadToSame(fs, path, dst)) return true;
    path = ParentDirectory(path);
  }
  return false;
}

absl::Status CheckIsNoPartOfSource(FileSystem& fs, const DestinationPath& dst,
                                   const Checkpoint& source) {
  if (LeadToSame(fs, source.path(), dst.path())) return absl::OkStatus();
  const SourceFiles& files = source.files();
  absl::flat_hash_set<std::string> seen_folders;
  for (uint32_t file = 0; file < files.names().size(); ++file) {
    const std::string& name = files.names()[file];
    const std::string path = files.FullPath(file);
    const bool is_seen = !seen_folders.insert(ParentDirectory(path)).second;
    if (is_seen && BaseName(path) != dst.name()) continue;
    if (!Holds(fs, dst.path(), path, name)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        dst.path(), " is a part of the source ", source.path(), " (", name,
        "), which the output would replace; choose another destination"));
  }
  return absl::OkStatus();
}

bool IsDcpName(absl::string_view name) {
  return name == kDcpMetadataName || IsDataFileName(name) ||
         IsRankIndexName(name) || IsDigestsName(name) ||
         IsTemporaryIndexName(name);
}

// Whether the file `name` belongs to the checkpoint of several files in
// `directory`. Models that only lie in one folder do not belong together.
bool IsOneOfSeveral(FileSystem& fs, const std::string& directory,
                    const std::string& name, Dialect dialect) {
  if (dialect != Dialect::kSafetensors && dialect != Dialect::kTorch) {
    return true;
  }
  const absl::StatusOr<std::vector<DirectoryEntry>> entries =
      fs.List(directory);
  return IsShardName(name) ||
         (entries.ok() &&
          std::any_of(entries->begin(), entries->end(), [](const auto& entry) {
            return IsWeightIndexName(entry.name);
          }));
}

}  // namespace

absl::Status CheckPlace(FileSystem& fs, const DestinationPath& dst,
                        Destination::Kind kind, const Checkpoint& source,
                        const std::stop_token& stop) {
  const std::string& path = dst.path();
  const absl::StatusOr<FileInfo> info = fs.Stat(path);
  if (info.ok()) {
    const absl::Status checked = CheckIsNoPartOfSource(fs, dst, source);
    if (!checked.ok()) return checked;
  }
  if (kind != Destination::Kind::kFile) return absl::OkStatus();
  const std::string& name = dst.name();
  if (IsDcpName(name)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": ", name,
        " is the name of a file inside a DCP checkpoint; choose another name"));
  }
  if (!info.ok()) return absl::OkStatus();
  const std::string& parent = dst.parent();
  // A path that cannot be opened is not a checkpoint that could be damaged.
  const absl::StatusOr<CheckpointParts> around =
      OpenDirectory(fs, parent, {}, stop);
  if (!around.ok()) return absl::OkStatus();
  const std::vector<std::string>& names = around->files->names();
  if (names.size() == 1 ||
      std::find(names.begin(), names.end(), name) == names.end() ||
      !IsOneOfSeveral(fs, parent, name, around->dialect)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is one of the ", names.size(), " files of the checkpoint ",
      parent, ", which would no longer be whole; choose another destination"));
}

}  // namespace dcp
