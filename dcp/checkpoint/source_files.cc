#include "dcp/checkpoint/source_files.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"

namespace dcp {

SourceFiles::SourceFiles(FileSystem& fs, std::string directory,
                         std::vector<std::string> names, DirectMode direct,
                         bool follow_symlinks)
    : fs_(fs),
      directory_(std::move(directory)),
      names_(std::move(names)),
      direct_(direct),
      follow_symlinks_(follow_symlinks),
      files_(names_.size()) {}

SourceFiles::~SourceFiles() {
  for (const File& file : files_) {
    // Nothing was written through the handle: a failing close loses nothing.
    if (file.handle >= 0) fs_.Close(file).IgnoreError();
  }
}

std::string SourceFiles::PathOf(uint32_t file) const {
  return JoinPath(directory_, names_[file]);
}

absl::StatusOr<File> SourceFiles::Get(uint32_t file) {
  absl::MutexLock lock(&mutex_);
  if (files_[file].handle < 0) {
    DCP_ASSIGN_OR_RETURN(
        files_[file], fs_.OpenForRead(PathOf(file), direct_, follow_symlinks_));
    by_handle_[files_[file].handle] = file;
  }
  return files_[file];
}

absl::Status SourceFiles::CheckRange(uint32_t file, uint64_t offset,
                                     uint64_t length) {
  DCP_ASSIGN_OR_RETURN(const File opened, Get(file));
  const std::optional<uint64_t> end = CheckedAdd(offset, length);
  if (!end.has_value() || *end > opened.size) {
    return absl::DataLossError(absl::StrCat(
        names_[file], ": bytes [", offset, ", +", length,
        ") reach past the end of the file, which has ", opened.size));
  }
  return absl::OkStatus();
}

std::string SourceFiles::Describe(FileHandle handle) const {
  absl::MutexLock lock(&mutex_);
  const auto it = by_handle_.find(handle);
  return it == by_handle_.end() ? std::string() : names_[it->second];
}

}  // namespace dcp
