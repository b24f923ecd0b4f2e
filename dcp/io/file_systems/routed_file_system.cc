// SPDX-License-Identifier: Apache-2.0
// [Note: two queues] A lane may read from one file system and write to the
// other. Local requests end soon in any case, so Reap waits for them while
// there are any, and for the store otherwise.
#include "dcp/io/file_systems/routed_file_system.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/io/object/object_queue.h"
#include "dcp/io/object/object_url.h"

namespace dcp {
namespace {

bool IsObject(FileHandle handle) { return handle >= kFirstObjectHandle; }

class RoutedQueue final : public IoQueue {
 public:
  RoutedQueue(std::unique_ptr<IoQueue> local, ObjectFileSystem& objects)
      : local_(std::move(local)),
        objects_(objects.NewObjectQueue(local_->depth())) {}

  uint32_t depth() const override { return local_->depth(); }
  uint32_t in_flight() const override {
    return local_->in_flight() + objects_->in_flight();
  }
  absl::Status Submit(IoRequest* request) override {
    return IsObject(request->file) ? objects_->Submit(request)
                                   : local_->Submit(request);
  }
  // See [Note: two queues].
  absl::Status Reap(std::vector<IoRequest*>& done) override {
    const size_t before = done.size();
    objects_->ReapEnded(done);
    if (done.size() > before) return absl::OkStatus();
    return local_->in_flight() > 0 ? local_->Reap(done) : objects_->Reap(done);
  }
  void Cancel() override {
    local_->Cancel();
    objects_->Cancel();
  }

 private:
  const std::unique_ptr<IoQueue> local_;
  const std::unique_ptr<ObjectQueue> objects_;
};

class RoutedFileSystem final : public FileSystem {
 public:
  RoutedFileSystem(std::unique_ptr<FileSystem> local, OpenObjectStore open)
      : local_(std::move(local)), objects_(std::move(open)) {}

  FileSystemTraits TraitsAt(absl::string_view path) override {
    return SystemFor(path).TraitsAt(path);
  }
  absl::StatusOr<File> OpenForRead(absl::string_view path, DirectMode direct,
                                   bool follow_symlinks) override {
    return SystemFor(path).OpenForRead(path, direct, follow_symlinks);
  }
  absl::StatusOr<File> Create(absl::string_view path, uint64_t size,
                              DirectMode direct) override {
    return SystemFor(path).Create(path, size, direct);
  }
  absl::StatusOr<File> OpenShared(absl::string_view path, uint64_t size,
                                  DirectMode direct) override {
    return SystemFor(path).OpenShared(path, size, direct);
  }
  absl::StatusOr<File> CreateInParts(absl::string_view path,
                                     const InParts& parts) override {
    return SystemFor(path).CreateInParts(path, parts);
  }
  absl::Status Close(File file) override { return SystemFor(file).Close(file); }
  absl::Status Read(const File& file, uint64_t offset,
                    MutableByteSpan data) override {
    return SystemFor(file).Read(file, offset, data);
  }
  absl::Status Write(const File& file, uint64_t offset,
                     ByteSpan data) override {
    return SystemFor(file).Write(file, offset, data);
  }
  absl::Status Truncate(const File& file, uint64_t size) override {
    return SystemFor(file).Truncate(file, size);
  }
  absl::Status Sync(const File& file) override {
    return SystemFor(file).Sync(file);
  }
  absl::Status SyncDirectory(absl::string_view path) override {
    return SystemFor(path).SyncDirectory(path);
  }
  absl::Status Rename(absl::string_view from, absl::string_view to) override {
    DCP_RETURN_IF_ERROR(CheckSame(from, to));
    return SystemFor(from).Rename(from, to);
  }
  absl::Status RenameExclusive(absl::string_view from,
                               absl::string_view to) override {
    DCP_RETURN_IF_ERROR(CheckSame(from, to));
    return SystemFor(from).RenameExclusive(from, to);
  }
  absl::Status Exchange(absl::string_view a, absl::string_view b) override {
    DCP_RETURN_IF_ERROR(CheckSame(a, b));
    return SystemFor(a).Exchange(a, b);
  }
  absl::Status Remove(absl::string_view path) override {
    return SystemFor(path).Remove(path);
  }
  absl::Status MakeDirectory(absl::string_view path) override {
    return SystemFor(path).MakeDirectory(path);
  }
  absl::Status RemoveDirectory(absl::string_view path) override {
    return SystemFor(path).RemoveDirectory(path);
  }
  absl::Status Publish(absl::string_view path, bool replaces) override {
    return SystemFor(path).Publish(path, replaces);
  }
  absl::Status Discard(absl::string_view path) override {
    return SystemFor(path).Discard(path);
  }
  absl::StatusOr<HiddenFile> Release(absl::string_view path) override {
    return SystemFor(path).Release(path);
  }
  absl::Status Adopt(const HiddenFile& hidden, uint64_t size) override {
    return SystemFor(hidden.path).Adopt(hidden, size);
  }
  absl::Status Replace(absl::string_view path, absl::string_view bytes,
                       const std::optional<FileInfo>& seen) override {
    return SystemFor(path).Replace(path, bytes, seen);
  }
  absl::StatusOr<std::vector<StoredFile>> ListBelow(
      absl::string_view path) override {
    return SystemFor(path).ListBelow(path);
  }
  absl::StatusOr<std::vector<HiddenFile>> ListHidden(
      absl::string_view path) override {
    return SystemFor(path).ListHidden(path);
  }
  absl::Status RemoveHidden(const HiddenFile& hidden) override {
    return SystemFor(hidden.path).RemoveHidden(hidden);
  }
  absl::StatusOr<FileInfo> Stat(absl::string_view path) override {
    return SystemFor(path).Stat(path);
  }
  absl::StatusOr<FileInfo> Stat(const File& file) override {
    return SystemFor(file).Stat(file);
  }
  absl::StatusOr<std::vector<DirectoryEntry>> List(
      absl::string_view path) override {
    return SystemFor(path).List(path);
  }
  absl::StatusOr<uint64_t> FreeBytes(absl::string_view path) override {
    return SystemFor(path).FreeBytes(path);
  }
  absl::StatusOr<FileLock> Lock(absl::string_view path,
                                absl::string_view note) override {
    return SystemFor(path).Lock(path, note);
  }
  absl::Status Unlock(absl::string_view path, File file) override {
    return SystemFor(path).Unlock(path, std::move(file));
  }
  absl::StatusOr<std::unique_ptr<IoQueue>> NewQueue(
      uint32_t depth, std::span<uint8_t> memory) override {
    DCP_ASSIGN_OR_RETURN(std::unique_ptr<IoQueue> local,
                         local_->NewQueue(depth, memory));
    return std::make_unique<RoutedQueue>(std::move(local), objects_);
  }

 private:
  FileSystem& SystemFor(absl::string_view path) {
    return IsObjectUrl(path) ? static_cast<FileSystem&>(objects_) : *local_;
  }
  FileSystem& SystemFor(const File& file) {
    return IsObject(file.handle) ? static_cast<FileSystem&>(objects_) : *local_;
  }
  static absl::Status CheckSame(absl::string_view a, absl::string_view b) {
    if (IsObjectUrl(a) == IsObjectUrl(b)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(a, " and ", b, " are on different file systems"));
  }

  const std::unique_ptr<FileSystem> local_;
  ObjectFileSystem objects_;
};

}  // namespace

std::unique_ptr<FileSystem> NewRoutedFileSystem(
    std::unique_ptr<FileSystem> local, OpenObjectStore open) {
  return std::make_unique<RoutedFileSystem>(std::move(local), std::move(open));
}

}  // namespace dcp
