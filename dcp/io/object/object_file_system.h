// SPDX-License-Identifier: Apache-2.0
// ObjectFileSystem: presents object stores as files and folders. A folder
// exists as long as an object is below it. Files appear whole when they are
// synced or published; renaming, locking, linking and truncating do not exist.
#ifndef DCP_IO_OBJECT_OBJECT_FILE_SYSTEM_H_
#define DCP_IO_OBJECT_OBJECT_FILE_SYSTEM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/bytes.h"
#include "dcp/io/file_system.h"
#include "dcp/io/io_queue.h"
#include "dcp/io/object/object_queue.h"
#include "dcp/io/object/object_store.h"
#include "dcp/io/object/object_url.h"
#include "dcp/io/object/object_writer.h"

namespace dcp {

// The first handle for objects, so that they differ from file descriptors.
inline constexpr FileHandle kFirstObjectHandle = 1 << 30;

// Opens a bucket's store. Called once for each, on any thread.
using OpenObjectStore =
    absl::AnyInvocable<absl::StatusOr<std::unique_ptr<ObjectStore>>(
        const ObjectUrl& url)>;

class ObjectFileSystem final : public FileSystem {
 public:
  explicit ObjectFileSystem(OpenObjectStore open) : open_(std::move(open)) {}
  // Files that are being read may still be open. Hidden files that were not
  // published end.
  ~ObjectFileSystem() override;

  FileSystemTraits TraitsAt(absl::string_view path) override;

  absl::StatusOr<File> OpenForRead(absl::string_view path, DirectMode direct,
                                   bool follow_symlinks) override;
  absl::StatusOr<File> Create(absl::string_view path, uint64_t size,
                              DirectMode direct) override;
  absl::StatusOr<File> CreateInParts(absl::string_view path,
                                     const InParts& parts) override;
  absl::Status Close(File file) override;
  absl::Status Read(const File& file, uint64_t offset,
                    MutableByteSpan data) override;
  absl::Status Write(const File& file, uint64_t offset, ByteSpan data) override;
  absl::Status Truncate(const File& file, uint64_t size) override;
  absl::Status Sync(const File& file) override;
  absl::Status SyncDirectory(absl::string_view path) override;
  absl::Status Rename(absl::string_view from, absl::string_view to) override;
  absl::Status RenameExclusive(absl::string_view from,
                               absl::string_view to) override;
  absl::Status Exchange(absl::string_view a, absl::string_view b) override;
  // An object that is absent is not an error.
  absl::Status Remove(absl::string_view path) override;
  absl::Status MakeDirectory(absl::string_view path) override;
  absl::Status RemoveDirectory(absl::string_view path) override;
  absl::Status Publish(absl::string_view path, bool replaces) override;
  absl::Status Discard(absl::string_view path) override;
  absl::StatusOr<HiddenFile> Release(absl::string_view path) override;
  absl::Status Adopt(const HiddenFile& hidden, uint64_t size) override;
  absl::Status Replace(absl::string_view path, absl::string_view bytes,
                       const std::optional<FileInfo>& seen) override;
  absl::StatusOr<std::vector<StoredFile>> ListBelow(
      absl::string_view path) override;
  absl::StatusOr<std::vector<HiddenFile>> ListHidden(
      absl::string_view path) override;
  absl::Status RemoveHidden(const HiddenFile& hidden) override;
  absl::StatusOr<FileInfo> Stat(absl::string_view path) override;
  absl::StatusOr<FileInfo> Stat(const File& file) override;
  absl::StatusOr<std::vector<DirectoryEntry>> List(
      absl::string_view path) override;
  absl::StatusOr<uint64_t> FreeBytes(absl::string_view path) override;
  absl::StatusOr<FileLock> Lock(absl::string_view path,
                                absl::string_view note) override;
  absl::Status Unlock(absl::string_view path, File file) override;
  // `memory` needs no registration.
  absl::StatusOr<std::unique_ptr<IoQueue>> NewQueue(
      uint32_t depth, std::span<uint8_t> memory) override;

  // A queue for this file system's files. This must outlive the queue.
  std::unique_ptr<ObjectQueue> NewObjectQueue(uint32_t depth);

 private:
  // Begins `request` on a file from this file system; `done` is called on a
  // thread of the store.
  void Start(const IoRequest& request, std::stop_token stop,
             ObjectStore::Done done);

  // An open file: an object that is read, or one that is written. Requests in
  // flight own it too.
  struct OpenObject {
    ObjectStore* store = nullptr;
    ObjectInfo info;  // the object when it was opened
    std::unique_ptr<ObjectWriter> writer;
    bool synced = false;
  };
  struct Place {
    ObjectStore* store;
    ObjectUrl url;
  };

  absl::StatusOr<Place> Find(absl::string_view path);
  absl::StatusOr<std::shared_ptr<OpenObject>> Lookup(FileHandle handle);
  File Add(std::shared_ptr<OpenObject> object, uint64_t size);
  absl::StatusOr<std::unique_ptr<ObjectWriter>> TakeHidden(
      absl::string_view path);
  absl::Status OkIfOurs(absl::string_view path, absl::string_view bytes,
                        absl::Status error);
  absl::StatusOr<bool> HasBytes(absl::string_view path,
                                absl::string_view bytes);
  static FileInfo ToFileInfo(const ObjectStore& store, const ObjectInfo& info);

  absl::Mutex mutex_;
  OpenObjectStore open_ ABSL_GUARDED_BY(mutex_);
  // By scheme and bucket.
  std::map<std::string, std::unique_ptr<ObjectStore>, std::less<>> stores_
      ABSL_GUARDED_BY(mutex_);
  FileHandle next_handle_ ABSL_GUARDED_BY(mutex_) = kFirstObjectHandle;
  std::map<FileHandle, std::shared_ptr<OpenObject>> open_objects_
      ABSL_GUARDED_BY(mutex_);
  // Complete objects that were not published, by scheme, bucket and key.
  std::map<std::string, std::unique_ptr<ObjectWriter>, std::less<>> hidden_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace dcp

#endif  // DCP_IO_OBJECT_OBJECT_FILE_SYSTEM_H_
