// SPDX-License-Identifier: Apache-2.0
// Lists everything below a folder in an ObjectStore, all pages. Blocking; any
// thread.
#ifndef DCP_IO_OBJECT_OBJECT_LISTS_H_
#define DCP_IO_OBJECT_OBJECT_LISTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"
#include "dcp/io/object/object_store.h"

namespace dcp {

// The common prefix of all keys below the folder `key`.
std::string FolderPrefix(absl::string_view key);

// These are ResourceExhausted beyond kMaxFiles.

// The files and folders in a folder, sorted by name.
absl::StatusOr<std::vector<DirectoryEntry>> ListFolder(ObjectStore& store,
                                                       absl::string_view key);
// All files below the folder, sorted by path.
absl::StatusOr<std::vector<StoredFile>> ListFilesBelow(ObjectStore& store,
                                                       absl::string_view key);
// The unfinished uploads below the folder, sorted by path and id.
absl::StatusOr<std::vector<HiddenFile>> ListUploadsBelow(ObjectStore& store,
                                                         absl::string_view key);

}  // namespace dcp

#endif  // DCP_IO_OBJECT_OBJECT_LISTS_H_
