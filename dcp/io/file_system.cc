// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/file_system.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"

namespace dcp {
namespace {

absl::string_view WithoutTrailingSlashes(absl::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

absl::StatusOr<std::string> ReadOpenFile(FileSystem& fs, const File& file,
                                         uint64_t limit,
                                         const std::stop_token& stop) {
  if (file.size > limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat(file.size, " bytes exceed ", limit));
  }
  std::string bytes(file.size, '\0');
  DCP_RETURN_IF_ERROR(ReadInBlocks(
      fs, file, 0,
      MutableByteSpan(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()),
      stop));
  return bytes;
}

absl::Status WriteOpenFile(FileSystem& fs, const File& file,
                           absl::string_view bytes) {
  DCP_RETURN_IF_ERROR(fs.Write(file, 0, AsBytes(bytes)));
  return fs.Sync(file);
}

absl::Status HasRename(absl::string_view path) {
  return absl::UnimplementedError(absl::StrCat(
      path,
      " is on a file system that renames files and does not publish them"));
}

}  // namespace

absl::StatusOr<File> FileSystem::OpenShared(absl::string_view path,
                                            uint64_t /*size*/, DirectMode) {
  return absl::UnimplementedError(absl::StrCat(
      path, ": several processes cannot write one file on this file system"));
}

absl::StatusOr<File> FileSystem::CreateInParts(absl::string_view path,
                                               const InParts&) {
  return HasRename(path);
}

absl::Status FileSystem::Publish(absl::string_view path, bool) {
  return HasRename(path);
}

absl::Status FileSystem::Discard(absl::string_view path) {
  return HasRename(path);
}

absl::StatusOr<HiddenFile> FileSystem::Release(absl::string_view path) {
  return HasRename(path);
}

absl::Status FileSystem::Adopt(const HiddenFile& hidden, uint64_t) {
  return HasRename(hidden.path);
}

absl::Status FileSystem::Replace(absl::string_view path, absl::string_view,
                                 const std::optional<FileInfo>&) {
  return HasRename(path);
}

absl::StatusOr<std::vector<StoredFile>> FileSystem::ListBelow(
    absl::string_view path) {
  return HasRename(path);
}

absl::StatusOr<std::vector<HiddenFile>> FileSystem::ListHidden(
    absl::string_view path) {
  return HasRename(path);
}

absl::Status FileSystem::RemoveHidden(const HiddenFile& hidden) {
  return HasRename(hidden.path);
}

absl::StatusOr<uint64_t> BlockBytesFor(const FileSystemTraits& traits,
                                       uint64_t file_bytes) {
  uint64_t block_bytes = traits.block_bytes;
  while (file_bytes / block_bytes >= traits.max_blocks) {
    block_bytes *= 2;
    if (block_bytes > kMaxBlockBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "a file of ", file_bytes, " bytes has more than ", traits.max_blocks,
          " parts of ", kMaxBlockBytes,
          " bytes, the most that the object store takes; cut it into smaller "
          "files (--max-shard-size)"));
    }
  }
  return block_bytes;
}

absl::Status ReadInBlocks(FileSystem& fs, const File& file, uint64_t offset,
                          MutableByteSpan data, const std::stop_token& stop) {
  for (uint64_t done = 0; done < data.size();) {
    DCP_RETURN_IF_ERROR(CheckStop(stop, "a file was read"));
    const uint64_t length = std::min<uint64_t>(data.size() - done, kBlockBytes);
    DCP_RETURN_IF_ERROR(
        fs.Read(file, offset + done, data.subspan(done, length)));
    done += length;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(FileSystem& fs, absl::string_view path,
                                     uint64_t limit, bool follow_symlinks,
                                     const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const File file,
                       fs.OpenForRead(path, DirectMode::kOff, follow_symlinks));
  absl::StatusOr<std::string> bytes = ReadOpenFile(fs, file, limit, stop);
  const absl::Status closed = fs.Close(file);
  DCP_RETURN_IF_ERROR(Annotate(bytes.status(), "read ", path));
  DCP_RETURN_IF_ERROR(Annotate(closed, "read ", path));
  return bytes;
}

absl::Status WriteFile(FileSystem& fs, absl::string_view path,
                       absl::string_view bytes) {
  DCP_ASSIGN_OR_RETURN(const File file,
                       fs.Create(path, bytes.size(), DirectMode::kOff));
  const absl::Status written = WriteOpenFile(fs, file, bytes);
  const absl::Status closed = fs.Close(file);
  const absl::Status status = written.ok() ? closed : written;
  // Half a file is useless. If removing it fails too, the first error is still
  // the more important one.
  if (!status.ok()) fs.Remove(path).IgnoreError();
  return Annotate(status, "write ", path);
}

bool MayHaveChanged(const FileInfo& before, const FileInfo& now) {
  if (before.device != now.device || before.inode != now.inode ||
      before.size != now.size || before.modified_ns != now.modified_ns) {
    return true;
  }
  return before.changed_ns != now.changed_ns &&
         before.num_links == now.num_links;
}

std::string FileVersion(const FileInfo& info, bool inode) {
  return absl::StrCat(inode ? absl::StrCat(info.inode, " ") : "", info.size,
                      " ", info.modified_ns, " ", info.changed_ns);
}

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  if (directory.empty()) return std::string(name);
  return absl::StrCat(directory, directory.back() == '/' ? "" : "/", name);
}

bool LeadToSame(FileSystem& fs, absl::string_view a, absl::string_view b) {
  if (a == b) return true;
  if (!fs.TraitsAt(a).has_rename || !fs.TraitsAt(b).has_rename) return false;
  const absl::StatusOr<FileInfo> at_a = fs.Stat(a);
  const absl::StatusOr<FileInfo> at_b = fs.Stat(b);
  return at_a.ok() && at_b.ok() && at_a->inode == at_b->inode &&
         at_a->device == at_b->device;
}

std::string ParentDirectory(absl::string_view path) {
  path = WithoutTrailingSlashes(path);
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  if (absl::EndsWith(path.substr(0, slash + 1), "://")) {
    return std::string(path);
  }
  if (slash == 0) return "/";
  return std::string(WithoutTrailingSlashes(path.substr(0, slash)));
}

absl::string_view BaseName(absl::string_view path) {
  path = WithoutTrailingSlashes(path);
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace dcp
