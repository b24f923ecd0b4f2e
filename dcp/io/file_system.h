// FileSystem: everything checkpoints need of a file system. One of the five
// interfaces: PosixFileSystem here, SimStorage in tests. Paths are plain
// strings. Errors come converted from errno, annotated with the path. Methods
// are thread-safe; a handle is used by one thread at a time.
#ifndef DCP_IO_FILE_SYSTEM_H_
#define DCP_IO_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/io/io_queue.h"

namespace dcp {

enum class DirectMode : uint8_t { kAuto, kOn, kOff };

// An open file. Requests on a direct file want offset, length and memory
// aligned to kDirectAlignment.
struct File {
  FileHandle handle = -1;
  bool direct = false;
  uint64_t size = 0;  // when it was opened
};

enum class FileKind : uint8_t { kFile, kDirectory, kSymlink, kOther };

struct FileInfo {
  FileKind kind = FileKind::kFile;
  uint64_t size = 0;
  // Which file it is, and when it was written: another one at the same path
  // differs in these.
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t num_links = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;  // of bytes, links, owner or mode

  friend bool operator==(const FileInfo&, const FileInfo&) = default;
};

// Whether the file that was `before` may have other bytes `now`. One more or
// one less link to it changes the times, and no byte.
bool MayHaveChanged(const FileInfo& before, const FileInfo& now);

struct DirectoryEntry {
  std::string name;
  FileKind kind = FileKind::kFile;
};

// What the first line of every lock file says.
inline constexpr absl::string_view kLockFileMagic = "tessera lock\n";

// The answer to FileSystem::Lock.
struct FileLock {
  // To write behind what it says, its size; handle -1: another one has the
  // lock.
  File file;
  // What the file said: of whoever holds it or, if `file` is valid, of a holder
  // that died. Lines "key value" after the magic; empty if there was none.
  std::string text;
  // This file system has no locks: the file alone is the lock, and one that a
  // dead holder left has to be removed by hand.
  bool by_existence = false;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A regular file; a FIFO, device or directory is refused without blocking.
  // With `follow_symlinks` false the last component may not be a link. kAuto
  // takes O_DIRECT where the file system allows it, the file is large and its
  // pages are not cached already; kOn fails where it is impossible.
  virtual absl::StatusOr<File> OpenForRead(absl::string_view path,
                                           DirectMode direct,
                                           bool follow_symlinks) = 0;
  // Creates the file, which must not exist, and reserves `size` bytes: a disk
  // that cannot hold them is reported now (ResourceExhausted, with what is
  // free). kAuto takes O_DIRECT where allowed and the file is large.
  virtual absl::StatusOr<File> Create(absl::string_view path, uint64_t size,
                                      DirectMode direct) = 0;
  virtual absl::Status Close(File file) = 0;

  // Blocking transfer of exactly `data`; OutOfRange at a premature end.
  // On direct files too, whatever the alignment. For metadata, not payload.
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

  // Of the link itself when `path` is one. NotFound when there is nothing.
  virtual absl::StatusOr<FileInfo> Stat(absl::string_view path) = 0;
  // Of a file that is open, whatever its path leads to by now.
  virtual absl::StatusOr<FileInfo> Stat(const File& file) = 0;
  // Sorted by name, without . and ..; at most kMaxFiles entries.
  virtual absl::StatusOr<std::vector<DirectoryEntry>> List(
      absl::string_view path) = 0;

  // How many bytes files may still take on the file system of the directory
  // `path`; UINT64_MAX where that is not known. Others may take them meanwhile.
  virtual absl::StatusOr<uint64_t> FreeBytes(absl::string_view path) = 0;

  // Takes the lock file `path`, which is made if there is none, for this handle
  // alone, among all processes of all machines that share the file system, and
  // writes into it the magic, host, process, time and `note`. Never waits. The
  // lock ends with the process, whatever ends it; then the file stays and the
  // next holder is told its text. FailedPrecondition if `path` is not a lock
  // file; NotFound without its directory.
  virtual absl::StatusOr<FileLock> Lock(absl::string_view path,
                                        absl::string_view note) = 0;
  // Removes the lock file, unless `path` has come to be another file, and ends
  // the lock, also when an error is returned.
  virtual absl::Status Unlock(absl::string_view path, File file) = 0;

  // A queue for this file system's handles. `memory` is the region in which
  // the requests' buffers lie, to be registered with the kernel where that
  // helps; it outlives the queue.
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

// FileSystem::Read of `data`, which may be long: a block at a time, and
// Cancelled before the next one when `stop` is requested.
absl::Status ReadInBlocks(FileSystem& fs, const File& file, uint64_t offset,
                          MutableByteSpan data, const std::stop_token& stop);

// A whole file of at most `limit` bytes (ResourceExhausted beyond it), read in
// blocks.
absl::StatusOr<std::string> ReadFile(FileSystem& fs, absl::string_view path,
                                     uint64_t limit, bool follow_symlinks,
                                     const std::stop_token& stop = {});

// Creates `path`, writes and syncs it.
absl::Status WriteFile(FileSystem& fs, absl::string_view path,
                       absl::string_view bytes);

// "a/b" + "c" -> "a/b/c"; the parent of "a/b" is "a", of "a" is ".".
std::string JoinPath(absl::string_view directory, absl::string_view name);
std::string ParentDirectory(absl::string_view path);
absl::string_view BaseName(absl::string_view path);

}  // namespace dcp

#endif  // DCP_IO_FILE_SYSTEM_H_
