// SPDX-License-Identifier: Apache-2.0
// The folders of an output that has files in several. Any thread.
#ifndef DCP_CHECKPOINT_DESTINATION_FOLDERS_H_
#define DCP_CHECKPOINT_DESTINATION_FOLDERS_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/io/file_system.h"

namespace dcp {

// The folders in the files' names, parents first.
std::vector<std::string> OutputFolders(const Output& output);

// Makes those below `directory` that are not there.
absl::Status MakeFolders(FileSystem& fs, const std::string& directory,
                         absl::Span<const std::string> folders);

// Removes `directory` and everything in it, except for the files `kept` (names
// relative to it) and their folders. NotFound if it is not there.
absl::Status RemoveFolders(FileSystem& fs, const std::string& directory,
                           const absl::flat_hash_set<std::string>& kept);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_FOLDERS_H_
