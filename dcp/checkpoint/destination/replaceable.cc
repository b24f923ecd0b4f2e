// SPDX-License-Identifier: Apache-2.0
// Decides by names and first bytes which files a checkpoint may replace.
//
// Tested by tests/dcp/checkpoint/destination/renamed_destination_test.cc.
#include "dcp/checkpoint/destination/replaceable.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/formats/model_opener.h"

namespace dcp {
namespace {}  // namespace

absl::StatusOr<std::optional<FileInfo>> FindReplaceable(FileSystem& fs,
                                                        absl::string_view path,
                                                        DestinationKind kind) {
  const absl::StatusOr<FileInfo> info = fs.Stat(path);
  if (absl::IsNotFound(info.status())) return std::nullopt;
  DCP_RETURN_IF_ERROR(info.status());
  if (info->kind == FileKind::kOther) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        " is a pipe, a socket or a device; a checkpoint is written next to its "
        "name and renamed, which would replace it: name a file"));
  }
  const bool is_dcp = kind == DestinationKind::kDcpDirectory;
  if (info->kind == FileKind::kSymlink && (!is_dcp || !fs.List(path).ok())) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is a symbolic link",
                     is_dcp ? " that does not lead to a directory"
                            : ", which the output would replace",
                     "; name the target of the link, or remove it"));
  }
  const bool is_directory = info->kind != FileKind::kFile;
  if (is_directory == (kind == DestinationKind::kFile)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " exists and is ", is_directory ? "a directory" : "a file",
        "; the output would be ", is_directory ? "a file" : "a directory",
        ": choose another destination"));
  }
  return *info;
}

absl::Status CheckReplaceableFile(FileSystem& fs, absl::string_view path,
                                  const FileInfo& info) {
  if (info.size == 0) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(const bool is_ours, IsCheckpointFile(fs, path));
  if (is_ours) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path,
      " begins like neither a safetensors nor a torch.save file; only a "
      "checkpoint is replaced: remove it, or choose another name"));
}

std::vector<std::string> StaleInDcpDirectory(
    absl::Span<const DirectoryEntry> entries) {
  const bool is_dcp = std::any_of(
      entries.begin(), entries.end(), [](const DirectoryEntry& entry) {
        return entry.name == kDcpMetadataName || IsRankIndexName(entry.name);
      });
  std::vector<std::string> stale;
  for (const DirectoryEntry& entry : entries) {
    if (entry.kind == FileKind::kDirectory) continue;
    if (IsDataFileName(entry.name) || IsDigestsName(entry.name) ||
        IsRankIndexName(entry.name) || IsTemporaryIndexName(entry.name) ||
        (!is_dcp && BelongsToSafetensors(entry.name))) {
      stale.push_back(entry.name);
    }
  }
  return stale;
}

absl::StatusOr<std::vector<std::string>> StaleInDirectory(
    absl::string_view path, absl::Span<const DirectoryEntry> entries,
    absl::Span<const std::string> brought) {
  std::vector<std::string> stale;
  std::vector<std::string> foreign;
  for (const DirectoryEntry& entry : entries) {
    const bool is_replaced =
        BelongsToSafetensors(entry.name) ||
        std::find(brought.begin(), brought.end(), entry.name) != brought.end();
    if (entry.kind != FileKind::kDirectory && is_replaced) {
      stale.push_back(entry.name);
    } else {
      foreign.push_back(entry.name);
    }
  }
  if (foreign.empty()) return stale;
  const size_t num_foreign = foreign.size();
  foreign.resize(std::min(num_foreign, kMaxNamesShown));
  return absl::FailedPreconditionError(absl::StrCat(
      path, " holds ", num_foreign == 1 ? "a file" : "files",
      " that the new safetensors checkpoint does not replace and that would be "
      "lost: ",
      absl::StrJoin(foreign, ", "), num_foreign > kMaxNamesShown ? ", ..." : "",
      "; move ", num_foreign == 1 ? "it" : "them",
      " away, or choose another destination"));
}

}  // namespace dcp
