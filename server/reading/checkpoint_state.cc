#include "server/reading/checkpoint_state.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/open/dcp_opener.h"
#include "dcp/checkpoint/open/model_files.h"
#include "dcp/io/file_system.h"

namespace dcp::server {
namespace {

// Whether a file in a directory affects which files belong to a model.
bool IsPartOfModel(absl::string_view name) {
  return absl::EndsWith(name, ".safetensors") || absl::EndsWith(name, ".bin") ||
         IsWeightIndexName(name);
}

// Appends text that changes when the file at `path` is replaced or written to.
absl::Status AddFile(RootedFileSystem& fs, const std::string& path,
                     absl::string_view name, std::string& text) {
  DCP_ASSIGN_OR_RETURN(const FileInfo info, fs.StatTarget(path));
  absl::StrAppend(&text, name, "\n", info.device, " ", info.inode, " ",
                  info.size, " ", info.modified_ns, "\n");
  return absl::OkStatus();
}

// The name of a DCP checkpoint's index, found as Checkpoint::Open finds it;
// empty if there is none.
absl::StatusOr<std::string> DcpIndexName(FileSystem& fs,
                                         const std::string& path,
                                         int64_t rank) {
  for (const std::string& name :
       {std::string(kDcpMetadataName),
        RankMetadataName(std::max<int64_t>(rank, 0))}) {
    const absl::Status status = fs.Stat(JoinPath(path, name)).status();
    if (status.ok()) return name;
    if (!absl::IsNotFound(status)) return status;
  }
  return std::string();
}

}  // namespace

absl::StatusOr<std::string> IndexState(RootedFileSystem& fs,
                                       const std::string& path, int64_t rank,
                                       const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const FileInfo info, fs.Stat(path));
  std::string text = absl::StrCat(rank, "\n");
  if (info.kind != FileKind::kDirectory) {
    DCP_RETURN_IF_ERROR(AddFile(fs, path, "", text));
    return text;
  }
  DCP_ASSIGN_OR_RETURN(const std::string name, DcpIndexName(fs, path, rank));
  if (!name.empty()) {
    DCP_RETURN_IF_ERROR(AddFile(fs, JoinPath(path, name), name, text));
    return text;
  }
  DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                       fs.List(path));
  for (const DirectoryEntry& entry : entries) {
    if (!IsPartOfModel(entry.name)) continue;
    DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
    DCP_RETURN_IF_ERROR(
        AddFile(fs, JoinPath(path, entry.name), entry.name, text));
  }
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
    const absl::StatusOr<FileInfo> info = fs.StatTarget(files.PathOf(i));
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
    absl::StrAppend(&text, info->device, " ", info->inode, " ", info->size, " ",
                    info->modified_ns, "\n");
    state.sizes.push_back(info->size);
  }
  state.text = absl::StrCat("files ", files.names().size(), "\n", text);
  return state;
}

std::string EtagOf(absl::string_view index_state,
                   absl::string_view files_state) {
  return absl::StrFormat(
      "%016x", Digest64Of(AsBytes(absl::StrCat(index_state, files_state))));
}

}  // namespace dcp::server
