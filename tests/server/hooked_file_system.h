// SPDX-License-Identifier: Apache-2.0
// HookedFileSystem: the operating system's file system, which calls a hook
// before each operation, in the same thread. The hook may wait, and so hold a
// job at a chosen point. For a path through a descriptor, the hook gets the
// path that it leads to.
#ifndef TESTS_SERVER_HOOKED_FILE_SYSTEM_H_
#define TESTS_SERVER_HOOKED_FILE_SYSTEM_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/bytes.h"
#include "dcp/io/file_system.h"

namespace dcp::server {

class HookedFileSystem final : public FileSystem {
 public:
  // `operation` is the method's name.
  using Hook =
      std::function<void(absl::string_view operation, absl::string_view path)>;

  void SetHook(Hook hook) {
    absl::MutexLock lock(&mutex_);
    hook_ = std::move(hook);
  }

  absl::StatusOr<File> OpenForRead(absl::string_view path, DirectMode direct,
                                   bool follow_symlinks) override {
    Call("OpenForRead", path);
    return disk_->OpenForRead(path, direct, follow_symlinks);
  }
  absl::StatusOr<File> Create(absl::string_view path, uint64_t size,
                              DirectMode direct) override {
    Call("Create", path);
    return disk_->Create(path, size, direct);
  }
  absl::StatusOr<File> OpenShared(absl::string_view path, uint64_t size,
                                  DirectMode direct) override {
    Call("OpenShared", path);
    return disk_->OpenShared(path, size, direct);
  }
  absl::Status Close(File file) override { return disk_->Close(file); }
  absl::Status Read(const File& file, uint64_t offset,
                    MutableByteSpan data) override {
    return disk_->Read(file, offset, data);
  }
  absl::Status Write(const File& file, uint64_t offset,
                     ByteSpan data) override {
    return disk_->Write(file, offset, data);
  }
  absl::Status Truncate(const File& file, uint64_t size) override {
    return disk_->Truncate(file, size);
  }
  absl::Status Sync(const File& file) override {
    Call("Sync", "");
    return disk_->Sync(file);
  }
  absl::Status SyncDirectory(absl::string_view path) override {
    Call("SyncDirectory", path);
    return disk_->SyncDirectory(path);
  }
  absl::Status Rename(absl::string_view from, absl::string_view to) override {
    Call("Rename", to);
    return disk_->Rename(from, to);
  }
  absl::Status RenameExclusive(absl::string_view from,
                               absl::string_view to) override {
    Call("RenameExclusive", to);
    return disk_->RenameExclusive(from, to);
  }
  absl::Status Exchange(absl::string_view a, absl::string_view b) override {
    Call("Exchange", b);
    return disk_->Exchange(a, b);
  }
  absl::Status Remove(absl::string_view path) override {
    return disk_->Remove(path);
  }
  absl::Status MakeDirectory(absl::string_view path) override {
    Call("MakeDirectory", path);
    return disk_->MakeDirectory(path);
  }
  absl::Status RemoveDirectory(absl::string_view path) override {
    return disk_->RemoveDirectory(path);
  }
  absl::StatusOr<FileInfo> Stat(absl::string_view path) override {
    return disk_->Stat(path);
  }
  absl::StatusOr<FileInfo> Stat(const File& file) override {
    Call("StatFile", "");
    return disk_->Stat(file);
  }
  absl::StatusOr<std::vector<DirectoryEntry>> List(
      absl::string_view path) override {
    return disk_->List(path);
  }
  absl::StatusOr<uint64_t> FreeBytes(absl::string_view path) override {
    return disk_->FreeBytes(path);
  }
  absl::StatusOr<FileLock> Lock(absl::string_view path,
                                absl::string_view note) override {
    Call("Lock", path);
    return disk_->Lock(path, note);
  }
  absl::Status Unlock(absl::string_view path, File file) override {
    Call("Unlock", path);
    return disk_->Unlock(path, file);
  }
  absl::StatusOr<std::unique_ptr<IoQueue>> NewQueue(
      uint32_t depth, std::span<uint8_t> memory) override {
    return disk_->NewQueue(depth, memory);
  }

 private:
  void Call(absl::string_view operation, absl::string_view path) {
    Hook hook;
    {
      absl::MutexLock lock(&mutex_);
      hook = hook_;
    }
    if (hook != nullptr) hook(operation, AskedPath(path));
  }

  // Replaces a path through a descriptor by the path that it leads to.
  static std::string AskedPath(absl::string_view path) {
    constexpr absl::string_view kHeld = "/proc/self/fd/";
    if (!absl::StartsWith(path, kHeld)) return std::string(path);
    const size_t slash = path.find('/', kHeld.size());
    std::error_code gone;
    const std::filesystem::path directory =
        std::filesystem::read_symlink(std::string(path.substr(0, slash)), gone);
    return absl::StrCat(directory.string(), path.substr(slash));
  }

  const std::unique_ptr<FileSystem> disk_ = NewPosixFileSystem();
  absl::Mutex mutex_;
  Hook hook_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp::server

#endif  // TESTS_SERVER_HOOKED_FILE_SYSTEM_H_
