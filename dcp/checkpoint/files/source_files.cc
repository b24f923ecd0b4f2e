// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/source_files.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "dcp/base/parallel_for.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {

std::vector<uint32_t> AllFiles(size_t count) {
  std::vector<uint32_t> files(count);
  std::iota(files.begin(), files.end(), 0u);
  return files;
}

SourceFiles::SourceFiles(FileSystem& fs, std::string directory,
                         std::vector<std::string> names, DirectMode direct,
                         bool follow_symlinks)
    : fs_(fs),
      directory_(std::move(directory)),
      names_(std::move(names)),
      direct_(direct),
      follow_symlinks_(follow_symlinks),
      files_(names_.size()) {}

std::unique_ptr<SourceFiles> SourceFiles::Join(std::string directory,
                                               std::vector<Part> parts) {
  DCP_CHECK(!parts.empty(), "no files to join");
  std::vector<std::string> names;
  for (const Part& part : parts) {
    for (const std::string& name : part.files->names()) {
      names.push_back(part.folder.empty() ? name : JoinPath(part.folder, name));
    }
  }
  const SourceFiles& first = *parts[0].files;
  auto joined = std::make_unique<SourceFiles>(
      first.fs_, std::move(directory), std::move(names), first.direct_,
      std::all_of(parts.begin(), parts.end(), [](const Part& part) {
        return part.files->follow_symlinks_;
      }));
  absl::MutexLock lock(&joined->mutex_);
  uint32_t index = 0;
  for (const Part& part : parts) {
    absl::MutexLock part_lock(&part.files->mutex_);
    for (OpenFile& opened : part.files->files_) {
      std::swap(joined->files_[index], opened);
      const FileHandle handle = joined->files_[index].file.handle;
      if (handle >= 0) joined->by_handle_[handle] = index;
      ++index;
    }
  }
  return joined;
}

SourceFiles::~SourceFiles() {
  for (const OpenFile& opened : files_) {
    // Nothing was written through the handle, so a failing close loses nothing.
    if (opened.file.handle >= 0) fs_.Close(opened.file).IgnoreError();
  }
}

std::string SourceFiles::FullPath(uint32_t file) const {
  return JoinPath(directory_, names_[file]);
}

absl::StatusOr<SourceFiles::OpenFile> SourceFiles::OpenAt(
    const std::string& path) {
  DCP_ASSIGN_OR_RETURN(const File made,
                       fs_.OpenForRead(path, direct_, follow_symlinks_));
  const absl::StatusOr<FileInfo> info = fs_.Stat(made);
  if (!info.ok()) {
    fs_.Close(made).IgnoreError();  // nothing was written
    return Annotate(info.status(), path);
  }
  return OpenFile{.file = made, .info = *info};
}

absl::StatusOr<File> SourceFiles::Get(uint32_t file) {
  {
    absl::MutexLock lock(&mutex_);
    if (files_[file].file.handle >= 0) return files_[file].file;
  }
  DCP_ASSIGN_OR_RETURN(const OpenFile made, OpenAt(FullPath(file)));
  absl::MutexLock lock(&mutex_);
  OpenFile& opened = files_[file];
  if (opened.file.handle >= 0) {
    fs_.Close(made.file).IgnoreError();  // another thread was faster
    return opened.file;
  }
  opened = made;
  by_handle_[made.file.handle] = file;
  return made.file;
}

uint32_t SourceFiles::NumAtOnce() const {
  return traits().has_rename ? 1 : kFilesAtOnce;
}

void SourceFiles::OpenAhead(absl::Span<const uint32_t> files) {
  if (NumAtOnce() == 1) return;
  ParallelFor(files.size(), NumAtOnce(), [&](size_t i) {
    return Get(files[i]).status();
  }).IgnoreError();
}

absl::Status SourceFiles::ForEach(
    const std::stop_token& stop,
    absl::FunctionRef<absl::Status(uint32_t)> body) const {
  return ForMany(names_.size(), stop,
                 [&](size_t i) { return body(static_cast<uint32_t>(i)); });
}

absl::Status SourceFiles::ForMany(
    size_t count, const std::stop_token& stop,
    absl::FunctionRef<absl::Status(size_t)> body) const {
  return ParallelFor(count, NumAtOnce(), [&](size_t i) -> absl::Status {
    DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
    return body(i);
  });
}

absl::Status SourceFiles::CheckRange(uint32_t file, uint64_t offset,
                                     uint64_t length) {
  DCP_ASSIGN_OR_RETURN(const File opened, Get(file));
  const std::optional<uint64_t> end = CheckedAdd(offset, length);
  if (!end.has_value() || *end > opened.size) {
    return WithPlace(
        absl::DataLossError(absl::StrCat(
            names_[file], ": bytes [", offset, ", +", length,
            ") reach past the end of the file, which has ", opened.size)),
        {.file = names_[file], .offset = absl::StrCat(offset)});
  }
  return absl::OkStatus();
}

std::optional<FileInfo> SourceFiles::OpenedAs(uint32_t file) const {
  absl::MutexLock lock(&mutex_);
  const OpenFile& opened = files_[file];
  if (opened.file.handle < 0) return std::nullopt;
  return opened.info;
}

absl::Status SourceFiles::CheckUnchanged() const {
  std::vector<OpenFile> opened;
  {
    absl::MutexLock lock(&mutex_);
    for (const OpenFile& one : files_) {
      if (one.file.handle >= 0) opened.push_back(one);
    }
  }
  return CheckUnchanged(opened);
}

absl::Status SourceFiles::CheckUnchanged(
    const absl::flat_hash_set<FileHandle>& handles) const {
  std::vector<OpenFile> opened;
  {
    absl::MutexLock lock(&mutex_);
    for (const FileHandle handle : handles) {
      const auto it = by_handle_.find(handle);
      if (it != by_handle_.end()) opened.push_back(files_[it->second]);
    }
  }
  return CheckUnchanged(opened);
}

absl::Status SourceFiles::CheckUnchanged(
    absl::Span<const OpenFile> opened) const {
  for (const OpenFile& one : opened) {
    const std::string name = Describe(one.file.handle);
    const absl::StatusOr<FileInfo> now = fs_.Stat(one.file);
    if (!now.ok()) return Annotate(now.status(), JoinPath(directory_, name));
    if (!MayHaveChanged(one.info, *now)) continue;
    return absl::UnavailableError(absl::StrCat(
        JoinPath(directory_, name),
        " changed while it was read; try again when nothing writes to it"));
  }
  return absl::OkStatus();
}

std::string SourceFiles::Describe(FileHandle handle) const {
  absl::MutexLock lock(&mutex_);
  const auto it = by_handle_.find(handle);
  return it == by_handle_.end() ? std::string() : names_[it->second];
}

}  // namespace dcp
