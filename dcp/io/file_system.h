// SPDX-License-Identifier: Apache-2.0
// FileSystem: everything that checkpoints need of a file system. It is
// implemented by PosixFileSystem here, and by SimStorage in tests. Paths are
// plain strings. Errors are converted from errno and annotated with the path.
// Methods are thread-safe; a handle is used by one thread at a time.
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

// An open file. Requests on a direct file require offset, length and memory to
// be aligned to kDirectAlignment.
struct File {
  FileHandle handle = -1;
  bool direct = false;
  uint64_t size = 0;  // when the file was opened
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
  int64_t changed_ns = 0;  // change of bytes, links, owner or mode
  std::string label = {};  // see InParts; empty where files have none

  friend bool operator==(const FileInfo&, const FileInfo&) = default;
};

// Whether the file described by `before` may have other bytes now that it is
// described by `now`. One link more or less changes the times but no bytes.
bool MayHaveChanged(const FileInfo& before, const FileInfo& now);

// For comparing across processes: text that differs as soon as the file was
// written to, even if it got its old size and time back; with `inode` also if
// another file took its place. Other links, owners and modes make another text,
// too.
std::string FileVersion(const FileInfo& info, bool inode);

struct DirectoryEntry {
  std::string name;
  FileKind kind = FileKind::kFile;
};

// The first line of every lock file.
inline constexpr absl::string_view kLockFileMagic = "tessera lock\n";

// The result of FileSystem::Lock.
struct FileLock {
  // The lock file; its size is the length of the text in it, so that the holder
  // can append to that. If the handle is -1, another holder has the lock.
  File file;
  // What the file said: the text of the current holder or, if `file` is valid,
  // of a holder that died. Lines "key value" after the magic; empty if there
  // were none.
  std::string text;
  // This file system has no locks: the existence of the file is the lock, and a
  // file that a dead holder left has to be removed by the user.
  bool by_existence = false;
};

// What writers need to know about the storage below a path.
struct FileSystemTraits {
  // Whether files can be renamed, exchanged and locked. If not, as in an object
  // store, a file appears whole when it is synced; it is made by CreateInParts,
  // and Publish and Replace take the place of renaming.
  bool has_rename = true;
  // Whether each file is written once from its first byte to its last.
  bool in_order = false;
  // The smallest blocks that a transfer should have, and how many blocks one
  // file may consist of.
  uint64_t block_bytes = kBlockBytes;
  uint64_t max_blocks = UINT64_MAX;
};

// How a file is made where there is no rename.
struct InParts {
  uint64_t size = 0;
  // The file is written in parts of this size, each whole and at a multiple of
  // it; only the last one is shorter. From BlockBytesFor.
  uint64_t part_bytes = 0;
  // A hidden file is durable when it is synced, but appears with Publish.
  bool hidden = false;
  // Letters and digits that Stat tells about a file that was hidden; optional.
  std::string label = {};
};

// A file that was begun, by whatever process, and has not appeared.
struct HiddenFile {
  std::string path;
  std::string id;        // of the upload, for the file system
  int64_t begun_ns = 0;  // since 1970
};

// A file of a store, as a list tells of it.
struct StoredFile {
  std::string path;
  uint64_t size = 0;
  int64_t modified_ns = 0;  // since 1970
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual FileSystemTraits TraitsOf(absl::string_view path) {
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
  // Opens a file that several processes write at once, each its own ranges;
  // creates it if nothing is there, and makes it `size` bytes long, which it
  // stays. Reserves them, and chooses direct transfers, as Create does; blocks
  // at the ends of ranges, which processes share, are for Write. Unimplemented
  // where files cannot be shared.
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

  // Creates a file that replaces what is at `path` once it appears, unless it
  // is hidden: then Publish decides. A file that is closed before it was synced
  // never appears.
  virtual absl::StatusOr<File> CreateInParts(absl::string_view path,
                                             const InParts& parts);
  // Makes the hidden file that this object created at `path`, and that is
  // synced and closed, appear; or forgets it. NotFound if there is none. One
  // that does not `replace` is AlreadyExists where something is by then, and
  // forgotten; that may be the file itself, after a lost answer, so that its
  // label tells. Atomic where the store keeps to conditions.
  virtual absl::Status Publish(absl::string_view path, bool replaces);
  virtual absl::Status Discard(absl::string_view path);
  // Instead of these, lets another process, or this one later, make the file
  // appear: forgets it here, and says what Adopt needs.
  virtual absl::StatusOr<HiddenFile> Release(absl::string_view path);
  // Takes over a hidden file of `size` bytes, so that Publish makes it appear.
  // NotFound if it was published or discarded, FailedPrecondition if it has
  // another size. Others may do the same; Discard then leaves it to them.
  virtual absl::Status Adopt(const HiddenFile& hidden, uint64_t size);
  // Puts a file of these bytes at `path` if what is there is still what Stat
  // has `seen`, or nothing if it is nullopt; otherwise AlreadyExists, unless
  // the file has these bytes already. Atomic where the store keeps to
  // conditions.
  virtual absl::Status Replace(absl::string_view path, absl::string_view bytes,
                               const std::optional<FileInfo>& seen);
  // All files below the directory `path`, in all its folders, sorted by path;
  // at most kMaxFiles.
  virtual absl::StatusOr<std::vector<StoredFile>> ListBelow(
      absl::string_view path);
  // The files below the directory `path` that have not appeared, sorted by
  // path; at most kMaxFiles. Those that a running process writes are among
  // them.
  virtual absl::StatusOr<std::vector<HiddenFile>> ListHidden(
      absl::string_view path);
  virtual absl::Status RemoveHidden(const HiddenFile& hidden);

  // Describes the link itself if `path` is one. NotFound if nothing is there.
  virtual absl::StatusOr<FileInfo> Stat(absl::string_view path) = 0;
  // Describes an open file, whatever its path leads to by now.
  virtual absl::StatusOr<FileInfo> Stat(const File& file) = 0;
  // Sorted by name, without . and ..; at most kMaxFiles entries.
  virtual absl::StatusOr<std::vector<DirectoryEntry>> List(
      absl::string_view path) = 0;

  // How many bytes files may still take on the file system of the directory
  // `path`; UINT64_MAX if unknown. Others may take them in the meantime.
  virtual absl::StatusOr<uint64_t> FreeBytes(absl::string_view path) = 0;

  // Takes the lock file `path` exclusively for this handle, among all processes
  // of all machines that share the file system; creates it if it does not
  // exist, and writes the magic, host, process, time and `note` into it. Never
  // waits. The lock ends with the process, whatever ends it; then the file
  // stays, and the next holder gets its text. FailedPrecondition if `path` is
  // not a lock file; NotFound without its directory.
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

// The file system of the operating system.
std::unique_ptr<FileSystem> NewPosixFileSystem(
    QueueKind queue_kind = QueueKind::kAuto);

// The size of the blocks with which a file of `file_bytes` is written: that of
// `traits`, or the smallest doubling of it with which the file has at most
// max_blocks. ResourceExhausted beyond kMaxBlockBytes.
absl::StatusOr<uint64_t> BlockBytesFor(const FileSystemTraits& traits,
                                       uint64_t file_bytes);

// Like FileSystem::Read, for `data` that may be long: reads a block at a time
// and returns Cancelled before the next one when `stop` is requested.
absl::Status ReadInBlocks(FileSystem& fs, const File& file, uint64_t offset,
                          MutableByteSpan data, const std::stop_token& stop);

// Reads a whole file of at most `limit` bytes, in blocks; ResourceExhausted if
// it is longer.
absl::StatusOr<std::string> ReadFile(FileSystem& fs, absl::string_view path,
                                     uint64_t limit, bool follow_symlinks,
                                     const std::stop_token& stop = {});

// Creates `path`, writes and syncs it.
absl::Status WriteFile(FileSystem& fs, absl::string_view path,
                       absl::string_view bytes);

// JoinPath("a/b", "c") is "a/b/c"; the parent of "a/b" is "a", that of "a" is
// ".", and that of "s3://bucket" is itself.
std::string JoinPath(absl::string_view directory, absl::string_view name);
std::string ParentDirectory(absl::string_view path);
// Whether both paths lead to one file or directory. A path in a store is the
// same only as itself.
bool LeadToSame(FileSystem& fs, absl::string_view a, absl::string_view b);
absl::string_view BaseName(absl::string_view path);

}  // namespace dcp

#endif  // DCP_IO_FILE_SYSTEM_H_
