// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/parts/directory_pointer.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

constexpr absl::string_view kLatest = "latest";
constexpr absl::string_view kRankLink = "latest-rank";
constexpr absl::string_view kIteration = "latest_checkpointed_iteration.txt";

// The file or directory to which the link at `path` leads.
absl::StatusOr<FileInfo> StatLinkTarget(FileSystem& fs,
                                        const std::string& path) {
  // As a directory, unless it is something else.
  absl::StatusOr<FileInfo> info = fs.Stat(JoinPath(path, "."));
  if (info.ok()) return info;
  DCP_ASSIGN_OR_RETURN(
      const File file,
      fs.OpenForRead(path, DirectMode::kOff, /*follow_symlinks=*/true));
  info = fs.Stat(file);
  DCP_RETURN_IF_ERROR(fs.Close(file));
  return info;
}

absl::StatusOr<DirectoryPointer> FollowLink(const SourceDirectory& directory,
                                            const std::string& name) {
  DCP_ASSIGN_OR_RETURN(const FileInfo target,
                       StatLinkTarget(*directory.fs, directory.FullPath(name)));
  for (const DirectoryEntry& entry : directory.entries) {
    if (entry.kind != target.kind) continue;
    const absl::StatusOr<FileInfo> info =
        directory.fs->Stat(directory.FullPath(entry.name));
    if (info.ok() && info->device == target.device &&
        info->inode == target.inode) {
      return DirectoryPointer{.name = name, .target = entry.name};
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat(directory.FullPath(name),
                   " is a link that leads to another directory; give the path "
                   "of the checkpoint itself"));
}

absl::StatusOr<DirectoryPointer> FollowIteration(
    const SourceDirectory& directory, const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       ReadPointer(directory, kIteration, stop));
  std::vector<std::string> names = {text};
  uint64_t number = 0;
  if (text != "release") {
    if (!absl::SimpleAtoi(text, &number)) {
      return absl::DataLossError(
          absl::StrCat(directory.FullPath(kIteration),
                       ": expected a number or 'release', found '",
                       text.substr(0, 100), "'"));
    }
    names = {absl::StrFormat("iter_%07d", number),
             absl::StrCat("global_step_", number)};
  }
  for (std::string& name : names) {
    if (directory.HasDirectory(name)) {
      return DirectoryPointer{.name = std::string(kIteration),
                              .target = std::move(name)};
    }
  }
  return absl::NotFoundError(
      absl::StrCat(directory.FullPath(kIteration), " names ", text,
                   ", but there is no folder ", names.front(),
                   names.size() > 1 ? absl::StrCat(" or ", names.back()) : ""));
}

}  // namespace

absl::StatusOr<std::optional<DirectoryPointer>> FindRankLink(
    const SourceDirectory& directory) {
  for (const DirectoryEntry& entry : directory.entries) {
    if (entry.kind == FileKind::kSymlink &&
        absl::StartsWith(entry.name, kRankLink)) {
      return FollowLink(directory, entry.name);
    }
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<DirectoryPointer>> FindPointer(
    const SourceDirectory& directory, const std::stop_token& stop) {
  if (directory.HasFile(kIteration)) {
    return FollowIteration(directory, stop);
  }
  for (const DirectoryEntry& entry : directory.entries) {
    if (entry.name != kLatest) continue;
    if (entry.kind == FileKind::kSymlink) {
      return FollowLink(directory, entry.name);
    }
    if (entry.kind != FileKind::kFile) continue;
    DCP_ASSIGN_OR_RETURN(std::string target,
                         ReadPointer(directory, kLatest, stop));
    if (directory.Has(target)) {
      return DirectoryPointer{.name = entry.name, .target = std::move(target)};
    }
    return absl::NotFoundError(absl::StrCat(directory.FullPath(kLatest),
                                            " names ", target.substr(0, 100),
                                            ", which is not there"));
  }
  return std::nullopt;
}

}  // namespace dcp
