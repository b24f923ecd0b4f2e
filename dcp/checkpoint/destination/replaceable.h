// SPDX-License-Identifier: Apache-2.0
// Whether a checkpoint may replace the files at a destination, and which of
// them belong to the old checkpoint. Looks, but changes nothing. Any thread.
#ifndef DCP_CHECKPOINT_DESTINATION_REPLACEABLE_H_
#define DCP_CHECKPOINT_DESTINATION_REPLACEABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/io/file_system.h"

namespace dcp {

// The kinds of destinations. The journals of conversions hold the numbers.
enum class DestinationKind : uint8_t {
  kDcpDirectory,
  kDirectory,
  kFile,
  kFolders,  // a directory with folders below it
};

// The file or directory at `path`; nullopt if nothing is there.
// FailedPrecondition if it may not be replaced whatever it holds: a pipe or a
// device, a symbolic link (except to a directory for kDcpDirectory), a file
// where a directory should go or the reverse.
absl::StatusOr<std::optional<FileInfo>> FindReplaceable(FileSystem& fs,
                                                        absl::string_view path,
                                                        DestinationKind kind);

// FailedPrecondition unless the file at `path` is empty or begins like one of
// the formats.
absl::Status CheckReplaceableFile(FileSystem& fs, absl::string_view path,
                                  const FileInfo& info);

// The files of an old checkpoint in the DCP directory with these entries. Model
// files next to a DCP checkpoint are an export and do not belong to it; without
// a DCP index they are the old checkpoint.
std::vector<std::string> StaleInDcpDirectory(
    absl::Span<const DirectoryEntry> entries);

// The files of an old checkpoint in the directory of safetensors `path` with
// these entries. FailedPrecondition if there are other files, which it names.
// The old config and tokenizer belong to the checkpoint only if the new one
// brings such files too: `brought` are their names.
absl::StatusOr<std::vector<std::string>> StaleInDirectory(
    absl::string_view path, absl::Span<const DirectoryEntry> entries,
    absl::Span<const std::string> brought);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_REPLACEABLE_H_
