// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/parts/source_directory.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

constexpr uint64_t kMaxPointerBytes = 4096;

const DirectoryEntry* Find(const SourceDirectory& directory,
                           absl::string_view name) {
  const auto found = std::lower_bound(
      directory.entries.begin(), directory.entries.end(), name,
      [](const DirectoryEntry& entry, absl::string_view wanted) {
        return entry.name < wanted;
      });
  return found != directory.entries.end() && found->name == name ? &*found
                                                                 : nullptr;
}

}  // namespace

bool SourceDirectory::Has(absl::string_view name) const {
  return Find(*this, name) != nullptr;
}

bool SourceDirectory::HasFile(absl::string_view name) const {
  const DirectoryEntry* const found = Find(*this, name);
  return found != nullptr && found->kind != FileKind::kDirectory;
}

bool SourceDirectory::HasDirectory(absl::string_view name) const {
  const DirectoryEntry* const found = Find(*this, name);
  return found != nullptr && found->kind == FileKind::kDirectory;
}

std::string SourceDirectory::FullPath(absl::string_view name) const {
  return JoinPath(path, name);
}

absl::StatusOr<SourceDirectory> ListDirectory(FileSystem& fs,
                                              absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries, fs.List(path));
  return SourceDirectory{&fs, std::string(path), std::move(entries)};
}

absl::StatusOr<std::optional<SourceDirectory>> OpenChildDirectory(
    const SourceDirectory& directory, absl::string_view name) {
  if (!directory.HasDirectory(name)) return std::nullopt;
  return ListDirectory(*directory.fs, directory.FullPath(name));
}

absl::StatusOr<std::string> ReadText(const SourceDirectory& directory,
                                     absl::string_view name, uint64_t limit,
                                     const std::stop_token& stop) {
  return ReadFile(*directory.fs, directory.FullPath(name), limit,
                  /*follow_symlinks=*/false, stop);
}

absl::StatusOr<std::string> ReadPointer(const SourceDirectory& directory,
                                        absl::string_view name,
                                        const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       ReadText(directory, name, kMaxPointerBytes, stop));
  const absl::string_view target = absl::StripAsciiWhitespace(text);
  if (target.empty() || target == "." || target == ".." ||
      target.find_first_of(absl::string_view("/\0", 2)) !=
          absl::string_view::npos) {
    return absl::DataLossError(
        absl::StrCat(directory.FullPath(name),
                     ": expected the name of a folder next to it, found '",
                     target.substr(0, 100), "'"));
  }
  return std::string(target);
}

}  // namespace dcp
