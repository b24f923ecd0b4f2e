// SPDX-License-Identifier: Apache-2.0

#include "server/reading/checkpoint_state.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/files/hub_folder.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/lens/model_config.h"
#include "dcp/io/file_system.h"

namespace dcp::server {
namespace {

// How deep below the directory a framework's checkpoint has files that describe
// the contents: zero/NAME/fp32.pt of DeepSpeed, below `latest`.
constexpr int kMaxDepth = 4;

// Whether a file affects the contents of the checkpoint around it. Logs, which
// are written to at all times, do not.
bool IsPartOfCheckpoint(absl::string_view name) {
  for (const absl::string_view suffix :
       {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".json",
        "metadata"}) {
    if (absl::EndsWith(name, suffix)) return true;
  }
  return absl::StartsWith(name, "latest");  // a pointer
}

// The part of `open` that affects how the checkpoint is read.
std::string OpenOptionsText(const OpenOptions& open) {
  const DialectOptions& dialect = open.dialect;
  return absl::StrCat(
      open.rank, "\n",
      dialect.from.has_value() ? DialectName(*dialect.from) : "", "\n",
      dialect.rank_files, "\n", dialect.layout, "\n", dialect.like, "\n",
      dialect.flat_units, "\n", dialect.low_precision_weights,
      dialect.optimizer_in_model_order, dialect.unstack_layers,
      dialect.torch_optimizer_names, "\n");
}

// Appends text that changes when the file at `path` is replaced or written to.
absl::Status AddFile(RootedFileSystem& fs, const std::string& path,
                     absl::string_view name, std::string& text) {
  DCP_ASSIGN_OR_RETURN(const FileInfo info, fs.StatTarget(path));
  absl::StrAppend(&text, name, "\n", info.device, " ",
                  FileVersion(info, /*inode=*/true), "\n");
  return absl::OkStatus();
}

// The same for the files where a mapping may find the model's numbers.
void AddModelConfigs(RootedFileSystem& fs, const std::string& path,
                     std::string& text) {
  for (const std::string& place : ModelConfigPlaces(path)) {
    // A file that does not exist, or may not be read, is not used either.
    if (!AddFile(fs, place, "", text).ok()) absl::StrAppend(&text, "none\n");
  }
}

// The same for all files in a directory and, if `depth` allows, below it.
absl::Status AddTree(RootedFileSystem& fs, const std::string& path,
                     absl::string_view prefix, int depth,
                     const std::stop_token& stop, std::string& text) {
  DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                       fs.List(path));
  for (const DirectoryEntry& entry : entries) {
    DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
    const std::string below = JoinPath(path, entry.name);
    const std::string name = absl::StrCat(prefix, entry.name);
    if (entry.kind != FileKind::kDirectory) {
      if (!IsPartOfCheckpoint(entry.name)) continue;
      DCP_RETURN_IF_ERROR(AddFile(fs, below, name, text));
    } else if (depth > 1) {
      DCP_RETURN_IF_ERROR(
          AddTree(fs, below, name + "/", depth - 1, stop, text));
    }
  }
  return absl::OkStatus();
}

// The name of the DCP index, found in the same way as by Checkpoint::Open.
// Empty if there is none, or if it is put together from the ranks' indices,
// which are files in the directory.
absl::StatusOr<std::string> DcpIndexName(FileSystem& fs,
                                         const std::string& path,
                                         int64_t rank) {
  std::vector<std::string> names = {std::string(kDcpMetadataName)};
  if (rank >= 0) names.push_back(RankMetadataName(rank));
  for (const std::string& name : names) {
    const absl::Status status = fs.Stat(JoinPath(path, name)).status();
    if (status.ok()) return name;
    if (!absl::IsNotFound(status)) return status;
  }
  return std::string();
}

}  // namespace

absl::StatusOr<std::string> IndexState(RootedFileSystem& fs,
                                       const std::string& given,
                                       const OpenOptions& open,
                                       const std::stop_token& stop) {
  // A hub's cache says elsewhere which snapshot counts.
  DCP_ASSIGN_OR_RETURN(const std::string path, ResolveHubFolder(fs, given));
  DCP_ASSIGN_OR_RETURN(const FileInfo info, fs.Stat(path));
  std::string text = OpenOptionsText(open);
  if (path != given) absl::StrAppend(&text, path, "\n");
  if (open.map != nullptr) AddModelConfigs(fs, path, text);
  if (info.kind != FileKind::kDirectory) {
    DCP_RETURN_IF_ERROR(AddFile(fs, path, "", text));
    return text;
  }
  DCP_ASSIGN_OR_RETURN(const std::string name,
                       DcpIndexName(fs, path, open.rank));
  if (!name.empty()) {
    DCP_RETURN_IF_ERROR(AddFile(fs, JoinPath(path, name), name, text));
    return text;
  }
  DCP_RETURN_IF_ERROR(AddTree(fs, path, "", kMaxDepth, stop, text));
  return text;
}

absl::StatusOr<FilesState> LookAtFiles(RootedFileSystem& fs,
                                       const Checkpoint& checkpoint,
                                       const std::stop_token& stop) {
  const SourceFiles& files = checkpoint.files();
  FilesState state;
  std::string text;
  for (uint32_t i = 0; i < files.names().size(); ++i) {
    DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
    const absl::StatusOr<FileInfo> info = fs.StatTarget(files.FullPath(i));
    // A checkpoint that lacks a file can still be inspected.
    if (absl::IsNotFound(info.status())) {
      absl::StrAppend(&text, "none\n");
      state.sizes.push_back(std::nullopt);
      continue;
    }
    DCP_RETURN_IF_ERROR(info.status());
    const std::optional<FileInfo> opened = files.OpenedAs(i);
    if (opened.has_value() && MayHaveChanged(*opened, *info)) {
      return FilesState();
    }
    absl::StrAppend(&text, info->device, " ",
                    FileVersion(*info, /*inode=*/true), "\n");
    state.sizes.push_back(info->size);
  }
  state.text = absl::StrCat("files ", files.names().size(), "\n", text);
  return state;
}

std::string CombinedDigest(absl::string_view index_state,
                           absl::string_view files_state) {
  return absl::StrFormat(
      "%016x", Xxh3Digest(AsBytes(absl::StrCat(index_state, files_state))));
}

}  // namespace dcp::server
