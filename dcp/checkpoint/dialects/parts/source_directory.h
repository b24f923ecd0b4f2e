// SPDX-License-Identifier: Apache-2.0
// SourceDirectory: a directory in which a checkpoint may be, with the names in
// it, for openers that recognise a checkpoint by names. Plain data; the
// functions are for any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_PARTS_SOURCE_DIRECTORY_H_
#define DCP_CHECKPOINT_DIALECTS_PARTS_SOURCE_DIRECTORY_H_

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"

namespace dcp {

struct SourceDirectory {
  FileSystem* fs;
  std::string path;
  std::vector<DirectoryEntry> entries;  // by name

  bool Has(absl::string_view name) const;  // as anything
  bool HasFile(absl::string_view name) const;
  bool HasDirectory(absl::string_view name) const;
  std::string FullPath(absl::string_view name) const;
};

absl::StatusOr<SourceDirectory> ListDirectory(FileSystem& fs,
                                              absl::string_view path);

// The directory `name` in `directory`; nullopt if there is none.
absl::StatusOr<std::optional<SourceDirectory>> OpenChildDirectory(
    const SourceDirectory& directory, absl::string_view name);

// The text in the file `name` in `directory`, which has at most `limit` bytes.
absl::StatusOr<std::string> ReadText(const SourceDirectory& directory,
                                     absl::string_view name, uint64_t limit,
                                     const std::stop_token& stop);

// The name in the pointer file `name` in `directory`, such as `latest`.
// DataLoss unless it names something next to it.
absl::StatusOr<std::string> ReadPointer(const SourceDirectory& directory,
                                        absl::string_view name,
                                        const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_PARTS_SOURCE_DIRECTORY_H_
