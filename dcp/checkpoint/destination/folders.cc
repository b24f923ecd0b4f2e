// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/destination/folders.h"

#include <cstddef>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

absl::Status RemoveBelow(FileSystem& fs, const std::string& path,
                         absl::string_view prefix,
                         const absl::flat_hash_set<std::string>& kept) {
  DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                       fs.List(path));
  for (const DirectoryEntry& entry : entries) {
    const std::string below = JoinPath(path, entry.name);
    const std::string name = absl::StrCat(prefix, entry.name);
    if (entry.kind == FileKind::kDirectory) {
      DCP_RETURN_IF_ERROR(
          RemoveBelow(fs, below, absl::StrCat(name, "/"), kept));
    } else if (!kept.contains(name)) {
      DCP_RETURN_IF_ERROR(fs.Remove(below));
    }
  }
  return kept.empty() ? fs.RemoveDirectory(path) : fs.SyncDirectory(path);
}

}  // namespace

std::vector<std::string> OutputFolders(const Output& output) {
  absl::btree_set<std::string> folders;
  for (const OutputFile& file : output.files) {
    const std::string& name = file.layout.name();
    for (size_t slash = name.find('/'); slash != std::string::npos;
         slash = name.find('/', slash + 1)) {
      folders.insert(name.substr(0, slash));
    }
  }
  // "a" sorts before "a/b".
  return {folders.begin(), folders.end()};
}

absl::Status MakeFolders(FileSystem& fs, const std::string& directory,
                         absl::Span<const std::string> folders) {
  for (const std::string& folder : folders) {
    const absl::Status made = fs.MakeDirectory(JoinPath(directory, folder));
    if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  }
  return absl::OkStatus();
}

absl::Status RemoveFolders(FileSystem& fs, const std::string& directory,
                           const absl::flat_hash_set<std::string>& kept) {
  return RemoveBelow(fs, directory, "", kept);
}

}  // namespace dcp
