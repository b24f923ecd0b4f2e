// SPDX-License-Identifier: Apache-2.0
// Removes the files that dead writers left at a destination.
//
// Tested by tests/dcp/checkpoint/destination/renamed_destination_test.cc.
#include "dcp/checkpoint/destination/dead_writer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/destination_lock.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/output/companion_files.h"

namespace dcp {
namespace {

// Whether a writer makes files with that name in a directory.
bool IsWritersName(absl::string_view name) {
  return BelongsToSafetensors(name) || IsCompanionName(name) ||
         IsDataFileName(name) || IsTemporaryIndexName(name) ||
         name == kDcpMetadataName || name == kLockName;
}

// Removes a directory that became no checkpoint, or the one that was replaced.
// A user may have put files into it since: those stay. Only the former has
// folders, as accelerate's checkpoints do, and no weights next to them.
void RemoveSibling(FileSystem& fs, absl::string_view directory,
                   absl::Status& status) {
  const absl::StatusOr<std::vector<DirectoryEntry>> inside = fs.List(directory);
  if (!inside.ok()) return;
  const bool was_model = std::any_of(inside->begin(), inside->end(),
                                     [](const DirectoryEntry& file) {
                                       return BelongsToSafetensors(file.name);
                                     });
  for (const DirectoryEntry& file : *inside) {
    const std::string path = JoinPath(directory, file.name);
    if (file.kind == FileKind::kDirectory) {
      if (!was_model) RemoveSibling(fs, path, status);
    } else if (IsWritersName(file.name)) {
      status.Update(fs.Remove(path));
    }
  }
  status.Update(fs.RemoveDirectory(directory));
}

}  // namespace

absl::Status RemoveLeftInside(FileSystem& fs, absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                       fs.List(path));
  for (const DirectoryEntry& entry : entries) {
    // The writer died after the checkpoint had appeared.
    if (entry.name == kDcpMetadataName || IsRankIndexName(entry.name)) {
      return absl::OkStatus();
    }
  }
  for (const DirectoryEntry& entry : entries) {
    if (IsDataFileName(entry.name) || IsDigestsName(entry.name) ||
        IsTemporaryIndexName(entry.name)) {
      DCP_RETURN_IF_ERROR(fs.Remove(JoinPath(path, entry.name)));
    }
  }
  return absl::OkStatus();
}

void RemoveLeftSiblings(FileSystem& fs, absl::string_view path) {
  const std::string parent = ParentDirectory(path);
  const absl::StatusOr<std::vector<DirectoryEntry>> entries = fs.List(parent);
  if (!entries.ok()) return;
  absl::Status status;
  for (const DirectoryEntry& entry : *entries) {
    if (!IsLeftSiblingName(entry.name, BaseName(path))) continue;
    const std::string left = JoinPath(parent, entry.name);
    if (entry.kind == FileKind::kDirectory) {
      RemoveSibling(fs, left, status);
    } else {
      status.Update(fs.Remove(left));
    }
  }
  if (!status.ok()) {
    DCP_LOG(kWarning) << "event=unfinished_output_left path=" << path
                      << " error=" << status.message();
  }
}

}  // namespace dcp
