// SPDX-License-Identifier: Apache-2.0
// HookedStorage: wraps another file system and calls a hook before each
// operation, on the operation's thread. If the hook returns an error, the
// operation fails with it. The hook may use the other file system, and so act
// between two operations of the code under test. Closing and unlocking always
// work, as they do when a process dies. Queue requests are not hooked.
#ifndef TESTS_TESTING_HOOKED_STORAGE_H_
#define TESTS_TESTING_HOOKED_STORAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/io/file_system.h"

namespace dcp::testing {

class HookedStorage : public FileSystem {
 public:
  using Hook = std::function<absl::Status()>;

  // `fs` must outlive this.
  HookedStorage(FileSystem& fs, Hook hook) : fs_(fs), hook_(std::move(hook)) {}

  absl::StatusOr<File> OpenForRead(absl::string_view path, DirectMode direct,
                                   bool follow_symlinks) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.OpenForRead(path, direct, follow_symlinks);
  }
  absl::StatusOr<File> Create(absl::string_view path, uint64_t size,
                              DirectMode direct) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Create(path, size, direct);
  }
  absl::StatusOr<File> OpenShared(absl::string_view path, uint64_t size,
                                  DirectMode direct) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.OpenShared(path, size, direct);
  }
  FileSystemTraits TraitsAt(absl::string_view path) override {
    return fs_.TraitsAt(path);
  }
  absl::StatusOr<File> CreateInParts(absl::string_view path,
                                     const InParts& parts) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.CreateInParts(path, parts);
  }
  absl::Status Publish(absl::string_view path, bool replaces) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Publish(path, replaces);
  }
  absl::Status Discard(absl::string_view path) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Discard(path);
  }
  absl::StatusOr<HiddenFile> Release(absl::string_view path) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Release(path);
  }
  absl::Status Adopt(const HiddenFile& hidden, uint64_t size) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Adopt(hidden, size);
  }
  absl::Status Replace(absl::string_view path, absl::string_view bytes,
                       const std::optional<FileInfo>& seen) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Replace(path, bytes, seen);
  }
  absl::StatusOr<std::vector<HiddenFile>> ListHidden(
      absl::string_view path) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.ListHidden(path);
  }
  absl::Status RemoveHidden(const HiddenFile& hidden) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.RemoveHidden(hidden);
  }
  absl::Status Close(File file) override { return fs_.Close(file); }
  absl::Status Read(const File& file, uint64_t offset,
                    MutableByteSpan data) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Read(file, offset, data);
  }
  absl::Status Write(const File& file, uint64_t offset,
                     ByteSpan data) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Write(file, offset, data);
  }
  absl::Status Truncate(const File& file, uint64_t size) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Truncate(file, size);
  }
  absl::Status Sync(const File& file) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Sync(file);
  }
  absl::Status SyncDirectory(absl::string_view path) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.SyncDirectory(path);
  }
  absl::Status Rename(absl::string_view from, absl::string_view to) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Rename(from, to);
  }
  absl::Status RenameExclusive(absl::string_view from,
                               absl::string_view to) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.RenameExclusive(from, to);
  }
  absl::Status Exchange(absl::string_view a, absl::string_view b) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Exchange(a, b);
  }
  absl::Status Remove(absl::string_view path) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Remove(path);
  }
  absl::Status MakeDirectory(absl::string_view path) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.MakeDirectory(path);
  }
  absl::Status RemoveDirectory(absl::string_view path) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.RemoveDirectory(path);
  }
  absl::StatusOr<FileInfo> Stat(absl::string_view path) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Stat(path);
  }
  absl::StatusOr<FileInfo> Stat(const File& file) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Stat(file);
  }
  absl::StatusOr<std::vector<DirectoryEntry>> List(
      absl::string_view path) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.List(path);
  }
  absl::StatusOr<uint64_t> FreeBytes(absl::string_view path) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.FreeBytes(path);
  }
  absl::StatusOr<FileLock> Lock(absl::string_view path,
                                absl::string_view note) override {
    DCP_RETURN_IF_ERROR(hook_());
    return fs_.Lock(path, note);
  }
  absl::Status Unlock(absl::string_view path, File file) override {
    return fs_.Unlock(path, file);
  }
  absl::StatusOr<std::unique_ptr<IoQueue>> NewQueue(
      uint32_t depth, std::span<uint8_t> memory) override {
    return fs_.NewQueue(depth, memory);
  }

 private:
  FileSystem& fs_;
  const Hook hook_;
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_HOOKED_STORAGE_H_
