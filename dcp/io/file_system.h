// SPDX-License-Identifier: Apache-2.0
// FileSystem: the file operations that checkpoints need. PosixFileSystem
// implements it here, and SimStorage in tests. Paths are plain strings. Errors
// are converted from errno and annotated with the path. Methods are
// thread-safe; a handle is used by one thread at a time.
#ifndef DCP_IO_FILE_SYSTEM_H_
#define DCP_IO_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/io/io_queue.h"

namespace dcp {

enum class DirectMode : uint8_t { kAuto, kOn, kOff };

// An open file.
struct File {
  FileHandle handle = -1;
  // In bytes. Offset, length and memory address of each request are multiples
  // of it. A power of two, at most kMaxDirectAlignment; 1 if the file is not
  // direct.
  uint64_t alignment = 1;
  uint64_t size = 0;  // when the file was opened

  bool direct() const { return alignment > 1; }
};

enum class FileKind : uint8_t { kFile, kDirectory, kSymlink, kOther };

struct FileInfo {
  FileKind kind = FileKind::kFile;
  uint64_t size = 0;
  // Which file it is, and when it was written: these differ for another file at
  // the same path.
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t num_links = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;  // change to bytes, links, owner or mode
  // see InParts; empty if the file system has no labels
  std::string label = {};

  friend bool operator==(const FileInfo&, const FileInfo&) = default;
};

// Whether the file described by `before` may have other bytes now that it is
// described by `now`. One link more or less changes the times but no bytes.
bool MayHaveChanged(const FileInfo& before, const FileInfo& now);

// For comparing files across processes. The text differs as soon as the file
// was written to, even if the old size and time were restored; with `inode`
// also if another file took the file's place. A change to links, owner or mode
// changes the text, too.
std::string FileVersion(const FileInfo& info, bool inode);

struct DirectoryEntry {
  std::string name;
  FileKind kind = FileKind::kFile;
};

// The first line in every lock file.
inline constexpr absl::string_view kLockFileMagic = "tessera lock\n";

// The result from FileSystem::Lock.
struct FileLock {
  // The lock file; the size is the length of the text in it, so that the holder
  // can append to that. If the handle is -1, another holder has the lock.
  File file;
  // The text in the file: the current holder's or, if `file` is valid, a dead
  // holder's. Lines "key value" after the magic; empty if there were none.
  std::string text;
  // This file system has no locks: the file's existence is the lock, and the
  // user has to remove the file that a dead holder left.
  bool by_existence = false;
};

// A path's storage properties that writers need to know.
struct FileSystemTraits {
  // Whether files can be renamed, exchanged and locked. If not, as in an object
  // store, CreateInParts makes files, a file appears whole when it is synced,
  // and Publish and Replace take the place of renaming.
  bool has_rename = true;
  // Whether each file is written once from the first byte to the last.
  bool in_order = false;
  // The smallest useful block for a transfer, and the most blocks in one file.
  uint64_t block_bytes = kBlockBytes;
  uint64_t max_blocks = UINT64_MAX;
};

// How a file is made if there is no rename.
struct InParts {
  uint64_t size = 0;
  // The file is written in parts of this size, each whole and at a multiple;
  // only the last one is shorter. From BlockBytesFor.
  uint64_t part_bytes = 0;
  // A hidden file is durable when it is synced, but appears with Publish.
  bool hidden = false;
  // Letters and digits that Stat returns for a file that was hidden; optional.
  std::string label = {};
};

// A file that some process began and that has not appeared.
struct HiddenFile {
  std::string path;
  std::string id;        // the upload's id, for the file system
  int64_t begun_ns = 0;  // since 1970
};

// A file in a store, as listed.
struct StoredFile {
  std::string path;
  uint64_t size = 0;
  int64_t modified_ns = 0;  // since 1970
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual FileSystemTraits TraitsAt(absl::string_view path) {
    static_cast<void>(path);
    return {};
  }

  // Opens a regular file; a FIFO, device or directory is refused without
  // blocking. If `follow_symlinks` is false, the last component may not be a
  // link. kAuto uses O_DIRECT if the file system allows it, the file is large
  // and its pages are not already cached; kOn fails where O_DIRECT is
  // impossible.
  virtual absl::StatusOr<File> OpenForRead(absl::string_view path,
                                           DirectMode direct,
                                           bool follow_symlinks) = 0;
  // Creates the file, which must not exist, and reserves `size` bytes: a disk
  // that cannot hold them is reported now (ResourceExhausted, with the free
  // space). kAuto uses O_DIRECT if the file system allows it and the file is
  // large.
  virtual absl::StatusOr<File> Create(absl::string_view path, uint64_t size,
                                      DirectMode direct) = 0;
  // Opens a file that several processes write at once, each in separate ranges;
  // creates it if it does not exist, and makes it `size` bytes long, which it
  // stays. Reserves the bytes, and chooses direct transfers, as Create does.
  // Blocks of the file's alignment at the ends of ranges are shared between
  // processes, so they are for Write. Unimplemented if files cannot be shared.
  virtual absl::StatusOr<File> OpenShared(absl::string_view path, uint64_t size,
                                          DirectMode direct);
  virtual absl::Status Close(File file) = 0;

  // Blocking transfer of exactly `data`, at any alignment, on direct files too;
  // OutOfRange at a premature end. For metadata, not for payload.
  virtual absl::Status Read(const File& file, uint64_t offset,
                            MutableByteSpan data) = 0;
  virtual absl::Status Write(const File& file, uint64_t offset,
                             ByteSpan data) = 0;

  virtual absl::Status Truncate(const File& file, uint64_t size) = 0;
  virtual absl::Status Sync(const File& file) = 0;  // fsync
  virtual absl::Status SyncDirectory(absl::string_view path) = 0;

  // Replaces `to` atomically if it exists.
  virtual absl::Status Rename(absl::string_view from, absl::string_view to) = 0;
  // Fails with AlreadyExists if `to` exists.
  virtual absl::Status RenameExclusive(absl::string_view from,
                                       absl::string_view to) = 0;
  // Swaps two existing paths atomically.
  virtual absl::Status Exchange(absl::string_view a, absl::string_view b) = 0;
  virtual absl::Status Remove(absl::string_view path) = 0;
  virtual absl::Status MakeDirectory(absl::string_view path) = 0;
  virtual absl::Status RemoveDirectory(absl::string_view path) = 0;  // empty

  // These are for file systems without rename; others return Unimplemented.

  // Creates a file that replaces the one at `path` once it appears, unless it
  // is hidden: then Publish decides. A file that is closed before it was synced
  // never appears.
  virtual absl::StatusOr<File> CreateInParts(absl::string_view path,
                                             const InParts& parts);
  // Publish makes a hidden file appear; Discard forgets it. This object created
  // the file at `path`, and it is synced and closed. NotFound if there is none.
  // Without `replaces`, AlreadyExists if a file exists by then, and the hidden
  // one is forgotten. After a lost answer the existing file may be the same
  // one; the label shows it. Atomic if the store honours conditions.
  virtual absl::Status Publish(absl::string_view path, bool replaces);
  virtual absl::Status Discard(absl::string_view path);
  // Lets another process, or this one later, make the file appear instead:
  // forgets it here, and returns the data that Adopt needs.
  virtual absl::StatusOr<HiddenFile> Release(absl::string_view path);
  // Takes over a hidden file of `size` bytes, so that Publish makes it appear.
  // NotFound if it was published or discarded, FailedPrecondition if it has
  // another size. Other processes may do the same; Discard then leaves it to
  // them.
  virtual absl::Status Adopt(const HiddenFile& hidden, uint64_t size);
  // Puts a file with these bytes at `path` if the file there is still the one
  // that Stat has `seen`, or if there is none and `seen` is nullopt; otherwise
  // AlreadyExists, unless the file has these bytes already. Atomic if the store
  // honours conditions.
  virtual absl::Status Replace(absl::string_view path, absl::string_view bytes,
                               const std::optional<FileInfo>& seen);
  // All files below the directory `path`, at any depth, sorted by path; at most
  // kMaxFiles.
  virtual absl::StatusOr<std::vector<StoredFile>> ListBelow(
      absl::string_view path);
  // The files below the directory `path` that have not appeared, sorted by
  // path; at most kMaxFiles. Files that a running process is writing are
  // included.
  virtual absl::StatusOr<std::vector<HiddenFile>> ListHidden(
      absl::string_view path);
  virtual absl::Status RemoveHidden(const HiddenFile& hidden);

  // Describes the link itself if `path` is one. NotFound if it does not exist.
  virtual absl::StatusOr<FileInfo> Stat(absl::string_view path) = 0;
  // Describes an open file, even if the path now leads to another file.
  virtual absl::StatusOr<FileInfo> Stat(const File& file) = 0;
  // Sorted by name, without . and ..; at most kMaxFiles entries.
  virtual absl::StatusOr<std::vector<DirectoryEntry>> List(
      absl::string_view path) = 0;

  // The bytes that files may still take on the file system with the directory
  // `path`; UINT64_MAX if unknown. Others may take them in the meantime.
  virtual absl::StatusOr<uint64_t> FreeBytes(absl::string_view path) = 0;

  // Takes the lock file `path` exclusively for this handle, among all processes
  // on all machines that share the file system; creates it if it does not
  // exist, and writes the magic, host, process, time and `note` into it. Never
  // waits. The lock ends with the process in any case; then the file stays, and
  // the next holder gets the old text. FailedPrecondition if `path` is not a
  // lock file; NotFound without the directory.
  virtual absl::StatusOr<FileLock> Lock(absl::string_view path,
                                        absl::string_view note) = 0;
  // Removes the lock file, unless `path` has become another file, and ends the
  // lock, even if an error is returned.
  virtual absl::Status Unlock(absl::string_view path, File file) = 0;

  // A queue for this file system's handles. `memory` is the region that holds
  // the requests' buffers, to be registered with the kernel where that helps;
  // it must outlive the queue.
  virtual absl::StatusOr<std::unique_ptr<IoQueue>> NewQueue(
      uint32_t depth, std::span<uint8_t> memory) = 0;
};

enum class QueueKind : uint8_t {
  kAuto,  // io_uring, or the blocking queue where the kernel refuses it
  kUring,
  kBlocking,
};

// The operating system's file system.
std::unique_ptr<FileSystem> NewPosixFileSystem(
    QueueKind queue_kind = QueueKind::kAuto);

// The block size for writing a file of `file_bytes`: the size in `traits`, or
// the smallest doubling for which the file has at most max_blocks.
// ResourceExhausted beyond kMaxBlockBytes.
absl::StatusOr<uint64_t> BlockBytesFor(const FileSystemTraits& traits,
                                       uint64_t file_bytes);

// Like FileSystem::Read, for `data` that may be long: reads a block at a time
// and returns Cancelled before the next one when `stop` is requested.
absl::Status ReadInBlocks(FileSystem& fs, const File& file, uint64_t offset,
                          MutableByteSpan data, const std::stop_token& stop);

// Reads a whole file with at most `limit` bytes, in blocks; ResourceExhausted
// if it is longer.
absl::StatusOr<std::string> ReadFile(FileSystem& fs, absl::string_view path,
                                     uint64_t limit, bool follow_symlinks,
                                     const std::stop_token& stop = {});

// Creates `path`, writes and syncs it.
absl::Status WriteFile(FileSystem& fs, absl::string_view path,
                       absl::string_view bytes);

// JoinPath("a/b", "c") is "a/b/c"; the parent of "a/b" is "a", the parent of
// "a" is ".", and the parent of "s3://bucket" is itself.
std::string JoinPath(absl::string_view directory, absl::string_view name);
std::string ParentDirectory(absl::string_view path);
// Whether both paths lead to one file or directory. A path in a store is the
// same only as itself.
bool LeadToSame(FileSystem& fs, absl::string_view a, absl::string_view b);
absl::string_view BaseName(absl::string_view path);

}  // namespace dcp

#endif  // DCP_IO_FILE_SYSTEM_H_
