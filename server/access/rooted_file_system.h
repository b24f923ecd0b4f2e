// SPDX-License-Identifier: Apache-2.0
// RootedFileSystem: a FileSystem with the rights of one client. Each path is
// checked against the client's roots when it is used, including paths that an
// index names or a link among a checkpoint's files leads to. It is then held
// (PinnedPath) while the underlying file system performs the operation, so that
// a link made in between cannot lead out of the roots. In an object store there
// are no links, and the checked name is used. PermissionDenied and
// InvalidArgument as from Client. Thread-safe if the underlying file system is.
#ifndef SERVER_ACCESS_ROOTED_FILE_SYSTEM_H_
#define SERVER_ACCESS_ROOTED_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/io/file_system.h"
#include "server/access/access.h"

namespace dcp::server {

class RootedFileSystem final : public FileSystem {
 public:
  // With the rights of the client, until it is revoked. `fs` outlives this.
  RootedFileSystem(FileSystem& fs, Client client);
  // For a job: with the rights that a client with this name has when it opens,
  // makes or renames a file. A file that the job wrote may be looked at and
  // removed with the rights of `client` even when that name has no other
  // rights. All except `client` outlive this.
  RootedFileSystem(FileSystem& fs, const Access& access, const Client& client);

  // The same for every client.
  FileSystemTraits TraitsAt(absl::string_view path) override {
    return fs_.TraitsAt(path);
  }

  absl::StatusOr<File> OpenForRead(absl::string_view path, DirectMode direct,
                                   bool follow_symlinks) override;
  absl::StatusOr<File> Create(absl::string_view path, uint64_t size,
                              DirectMode direct) override;
  absl::StatusOr<File> OpenShared(absl::string_view path, uint64_t size,
                                  DirectMode direct) override;
  absl::Status Close(File file) override { return fs_.Close(file); }

  absl::Status Read(const File& file, uint64_t offset,
                    MutableByteSpan data) override {
    return fs_.Read(file, offset, data);
  }
  absl::Status Write(const File& file, uint64_t offset,
                     ByteSpan data) override {
    return fs_.Write(file, offset, data);
  }
  absl::Status Truncate(const File& file, uint64_t size) override {
    return fs_.Truncate(file, size);
  }
  absl::Status Sync(const File& file) override { return fs_.Sync(file); }
  absl::Status SyncDirectory(absl::string_view path) override;

  absl::Status Rename(absl::string_view from, absl::string_view to) override;
  absl::Status RenameExclusive(absl::string_view from,
                               absl::string_view to) override;
  absl::Status Exchange(absl::string_view a, absl::string_view b) override;
  absl::Status Remove(absl::string_view path) override;
  absl::Status MakeDirectory(absl::string_view path) override;
  absl::Status RemoveDirectory(absl::string_view path) override;

  absl::StatusOr<File> CreateInParts(absl::string_view path,
                                     const InParts& parts) override;
  absl::Status Publish(absl::string_view path, bool replaces) override;
  absl::Status Discard(absl::string_view path) override;
  absl::StatusOr<HiddenFile> Release(absl::string_view path) override;
  absl::Status Adopt(const HiddenFile& hidden, uint64_t size) override;
  absl::Status Replace(absl::string_view path, absl::string_view bytes,
                       const std::optional<FileInfo>& seen) override;
  absl::StatusOr<std::vector<HiddenFile>> ListHidden(
      absl::string_view path) override;
  absl::Status RemoveHidden(const HiddenFile& hidden) override;

  absl::StatusOr<FileInfo> Stat(absl::string_view path) override;
  absl::StatusOr<FileInfo> Stat(const File& file) override {
    return fs_.Stat(file);
  }
  // Like Stat, but follows a link at the end of the path.
  absl::StatusOr<FileInfo> StatTarget(absl::string_view path);
  absl::StatusOr<std::vector<DirectoryEntry>> List(
      absl::string_view path) override;

  absl::StatusOr<uint64_t> FreeBytes(absl::string_view path) override;

  absl::StatusOr<FileLock> Lock(absl::string_view path,
                                absl::string_view note) override;
  absl::Status Unlock(absl::string_view path, File file) override;

  absl::StatusOr<std::unique_ptr<IoQueue>> NewQueue(
      uint32_t depth, std::span<uint8_t> memory) override {
    return fs_.NewQueue(depth, memory);
  }

 private:
  // The client with the rights that it has now.
  const Client& client() const;

  FileSystem& fs_;
  const Client client_;
  const Access* const access_ = nullptr;  // null: the rights are client_'s
  const Client nobody_{"", {}};
};

}  // namespace dcp::server

#endif  // SERVER_ACCESS_ROOTED_FILE_SYSTEM_H_
