// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/open/directory_opener.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/parts/dialect_opener.h"
#include "dcp/checkpoint/dialects/parts/directory_pointer.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/checkpoint/formats/model_opener.h"
#include "dcp/checkpoint/open/no_checkpoint.h"

namespace dcp {
namespace {

// The checkpoint that the directory's names show; nullopt if they show none.
MaybeParts TryOpenListed(const SourceDirectory& directory,
                         const OpenOptions& options,
                         const std::stop_token& stop) {
  const std::optional<Dialect> from = options.dialect.from;
  bool has_opener = false;
  for (const DialectOpener& opener : DialectOpeners()) {
    if (from.has_value() && opener.dialect != *from) continue;
    has_opener = true;
    DCP_ASSIGN_OR_RETURN(std::optional<CheckpointParts> parts,
                         opener.try_open(directory, options, stop));
    if (!parts.has_value()) continue;
    if (parts->dialect > Dialect::kTorch) {
      parts->properties.emplace(parts->properties.begin(), "dialect",
                                DialectName(parts->dialect));
    }
    return parts;
  }
  if (has_opener) return std::nullopt;
  return absl::UnimplementedError(absl::StrCat(
      "this program was built without the dialect ", DialectName(*from)));
}

// An error that explains why the directory is not a checkpoint.
absl::Status NoCheckpoint(const SourceDirectory& directory,
                          const OpenOptions& options,
                          const std::stop_token& stop) {
  if (!options.dialect.from.has_value()) {
    return WhyNoCheckpoint(directory, stop);
  }
  return absl::NotFoundError(absl::StrCat(
      directory.path, ": there is no checkpoint that can be read as ",
      DialectName(*options.dialect.from)));
}

// The checkpoint that the directory's names show, which must show one: pointers
// in it are not followed.
absl::StatusOr<CheckpointParts> OpenListed(const SourceDirectory& directory,
                                           const OpenOptions& options,
                                           const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(std::optional<CheckpointParts> parts,
                       TryOpenListed(directory, options, stop));
  if (parts.has_value()) return *std::move(parts);
  return NoCheckpoint(directory, options, stop);
}

// The checkpoint that the pointer names; nullopt without a pointer.
MaybeParts Follow(const SourceDirectory& directory,
                  const absl::StatusOr<std::optional<DirectoryPointer>>& found,
                  const OpenOptions& options, const std::stop_token& stop) {
  if (!found.ok()) return found.status();
  if (!found->has_value()) return std::nullopt;
  const DirectoryPointer& pointer = **found;
  const std::string path = directory.FullPath(pointer.target);
  const bool is_directory = directory.HasDirectory(pointer.target);
  SourceDirectory target;
  if (is_directory) {
    DCP_ASSIGN_OR_RETURN(target, ListDirectory(*directory.fs, path));
  }
  DCP_ASSIGN_OR_RETURN(
      CheckpointParts parts,
      is_directory
          ? OpenListed(target, options, stop)
          : OpenModel(*directory.fs, OneModelFile(path), options, stop));
  parts.properties.emplace_back(
      "followed", absl::StrCat(pointer.name, " to ", pointer.target));
  return parts;
}

}  // namespace

absl::StatusOr<CheckpointParts> OpenDirectory(FileSystem& fs,
                                              absl::string_view path,
                                              const OpenOptions& options,
                                              const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const SourceDirectory directory,
                       ListDirectory(fs, path));
  // Next to such a link, the files of several steps look like those of ranks.
  DCP_ASSIGN_OR_RETURN(
      std::optional<CheckpointParts> parts,
      Follow(directory, FindRankLink(directory), options, stop));
  if (parts.has_value()) return *std::move(parts);
  DCP_ASSIGN_OR_RETURN(parts, TryOpenListed(directory, options, stop));
  if (parts.has_value()) return *std::move(parts);
  DCP_ASSIGN_OR_RETURN(
      parts, Follow(directory, FindPointer(directory, stop), options, stop));
  if (parts.has_value()) return *std::move(parts);
  return NoCheckpoint(directory, options, stop);
}

}  // namespace dcp
