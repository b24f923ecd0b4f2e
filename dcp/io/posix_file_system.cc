// SPDX-License-Identifier: Apache-2.0
// FileSystem on Linux system calls.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/page_bytes.h"
#include "dcp/base/status.h"
#include "dcp/io/blocking_queue.h"
#include "dcp/io/direct_alignment.h"
#include "dcp/io/file_system.h"
#include "dcp/io/posix_error.h"
#include "dcp/io/posix_fd.h"
#include "dcp/io/posix_lock.h"
#include "dcp/io/uring_queue.h"

namespace dcp {
namespace {

FileKind ToFileKind(mode_t mode) {
  if (S_ISREG(mode)) return FileKind::kFile;
  if (S_ISDIR(mode)) return FileKind::kDirectory;
  if (S_ISLNK(mode)) return FileKind::kSymlink;
  return FileKind::kOther;
}

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
}

FileInfo ToFileInfo(const struct stat& info) {
  return {.kind = ToFileKind(info.st_mode),
          .size = static_cast<uint64_t>(info.st_size),
          .device = info.st_dev,
          .inode = info.st_ino,
          .num_links = info.st_nlink,
          .modified_ns = Nanoseconds(info.st_mtim),
          .changed_ns = Nanoseconds(info.st_ctim)};
}

// Sets O_DIRECT to `direct` and clears O_NONBLOCK. False with errno if the file
// system has no direct I/O.
bool SetDirect(int fd, bool direct) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return false;
  const int base = flags & ~(O_NONBLOCK | O_DIRECT);
  return fcntl(fd, F_SETFL, direct ? base | O_DIRECT : base) == 0;
}

// Whether most of the file is already in the page cache, judged by a few
// samples. Uses mincore instead of preadv2 with RWF_NOWAIT, because preadv2
// starts a read of each page that it misses, so the next call would find them
// all cached.
bool IsCached(int fd, const struct stat& info) {
  constexpr uint64_t kNumSamples = 8;
  // For other users' files, the kernel claims that all pages are cached.
  if (info.st_uid != geteuid() && geteuid() != 0) return false;
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  void* mapping = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) return false;
  uint64_t num_cached = 0;
  for (uint64_t i = 0; i < kNumSamples; ++i) {
    const uint64_t offset = AlignDown(size / kNumSamples * i, PageBytes());
    unsigned char resident = 0;
    if (mincore(static_cast<uint8_t*>(mapping) + offset, 1, &resident) == 0) {
      num_cached += resident & 1;
    }
  }
  munmap(mapping, size);
  return num_cached > kNumSamples / 2;
}

// Chooses direct or buffered I/O for an open file and returns the alignment of
// requests.
absl::StatusOr<uint64_t> ChooseAlignment(int fd, bool wanted, DirectMode mode) {
  if (wanted && SetDirect(fd, true)) return DirectAlignment(fd);
  if (wanted && mode == DirectMode::kOn) {
    return PosixError(errno, "open for direct I/O");
  }
  if (!SetDirect(fd, false)) return PosixError(errno, "open");
  return 1;
}

// The same for a file of `size` bytes that is to be written.
absl::StatusOr<uint64_t> ChooseAlignmentForSize(int fd, uint64_t size,
                                                DirectMode mode) {
  const bool wanted = mode == DirectMode::kOn || (mode == DirectMode::kAuto &&
                                                  size >= kMinDirectFileBytes);
  return ChooseAlignment(fd, wanted, mode);
}

// A file system's size, in bytes. One without a limit reports no blocks at all.
struct Space {
  explicit Space(const struct statvfs& fs)
      : is_known(fs.f_blocks > 0),
        free(is_known ? fs.f_bfree * fs.f_frsize : UINT64_MAX),
        available(is_known ? fs.f_bavail * fs.f_frsize : UINT64_MAX) {}

  bool is_known;
  uint64_t free;       // to root
  uint64_t available;  // to everybody
};

absl::Status Reserve(int fd, uint64_t size) {
  if (size == 0) return absl::OkStatus();
  struct statvfs fs;
  if (fstatvfs(fd, &fs) != 0) return PosixError(errno, "statvfs");
  const Space space(fs);
  const absl::Status no_space = absl::ResourceExhaustedError(
      absl::StrCat(size, " bytes needed, ", space.available, " free"));
  // If asked for too much, fallocate may fill the disk before it fails. It
  // decides itself about the blocks reserved for root.
  if (size > space.free) return no_space;
  const off_t length = static_cast<off_t>(size);
  if (Uninterrupted([&] { return fallocate(fd, 0, 0, length); }) == 0) {
    return absl::OkStatus();
  }
  if (errno == ENOSPC) return no_space;
  // This file system cannot reserve; at least it has the space now.
  if (errno == EOPNOTSUPP || errno == ENOSYS) return absl::OkStatus();
  return PosixError(errno, absl::StrCat("reserve ", size, " bytes"));
}

// Makes a direct file accept any alignment while the scope lives. The kernel
// keeps a file's cached and direct transfers coherent.
class BufferedScope {
 public:
  explicit BufferedScope(const File& file) : file_(file) {
    if (file_.direct()) SetDirect(file_.handle, false);
  }
  ~BufferedScope() {
    if (file_.direct()) SetDirect(file_.handle, true);
  }
  BufferedScope(const BufferedScope&) = delete;
  BufferedScope& operator=(const BufferedScope&) = delete;

 private:
  const File& file_;
};

class PosixFileSystem final : public FileSystem {
 public:
  explicit PosixFileSystem(QueueKind queue_kind) : queue_kind_(queue_kind) {}

  absl::StatusOr<File> OpenForRead(absl::string_view path, DirectMode direct,
                                   bool follow_symlinks) override {
    absl::StatusOr<File> file =
        OpenRegular(std::string(path), direct, follow_symlinks);
    if (!file.ok()) return Annotate(file.status(), path);
    return file;
  }

  absl::StatusOr<File> Create(absl::string_view path, uint64_t size,
                              DirectMode direct) override {
    const std::string name(path);
    OwnedFd fd(Uninterrupted([&] {
      return open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }));
    if (fd.get() < 0) return PosixError(errno, absl::StrCat("create ", path));
    absl::Status reserved = Reserve(fd.get(), size);
    absl::StatusOr<uint64_t> alignment =
        reserved.ok() ? ChooseAlignmentForSize(fd.get(), size, direct)
                      : reserved;
    if (!alignment.ok()) {
      unlink(name.c_str());
      return Annotate(alignment.status(), "create ", path);
    }
    return File{.handle = fd.Release(), .alignment = *alignment, .size = size};
  }

  // A file that could not be reserved stays: others may be writing it.
  absl::StatusOr<File> OpenShared(absl::string_view path, uint64_t size,
                                  DirectMode direct) override {
    const std::string name(path);
    OwnedFd fd(Uninterrupted([&] {
      return open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                  0666);
    }));
    struct stat info;
    if (fd.get() < 0 || fstat(fd.get(), &info) != 0) {
      return PosixError(errno, absl::StrCat("open ", path));
    }
    if (static_cast<uint64_t>(info.st_size) != size) {
      DCP_RETURN_IF_ERROR(Annotate(Reserve(fd.get(), size), "open ", path));
      if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
        return PosixError(errno, absl::StrCat("resize ", path));
      }
    }
    const absl::StatusOr<uint64_t> alignment =
        ChooseAlignmentForSize(fd.get(), size, direct);
    if (!alignment.ok()) {
      return Annotate(alignment.status(), "open ", path);
    }
    File file{.handle = fd.Release(), .alignment = *alignment, .size = size};
    // One process must not write a page directly while another writes it
    // through the cache: the kernel may write the cached page, with its old
    // bytes, over the new ones.
    if (file.direct()) file.alignment = std::max(file.alignment, PageBytes());
    return file;
  }

  absl::StatusOr<uint64_t> FreeBytes(absl::string_view path) override {
    struct statvfs fs;
    if (statvfs(std::string(path).c_str(), &fs) != 0) {
      return PosixError(errno, absl::StrCat(path, ": statvfs"));
    }
    const Space space(fs);
    return geteuid() == 0 ? space.free : space.available;
  }

  absl::Status Close(File file) override {
    // Linux has closed the descriptor, whatever it returns.
    if (close(file.handle) == 0 || errno == EINTR) return absl::OkStatus();
    return PosixError(errno, "close");
  }

  absl::Status Read(const File& file, uint64_t offset,
                    MutableByteSpan data) override {
    const BufferedScope buffered(file);
    return TransferAll("read", offset, data.size(), [&](uint64_t done) {
      return pread(file.handle, data.data() + done, data.size() - done,
                   static_cast<off_t>(offset + done));
    });
  }

  absl::Status Write(const File& file, uint64_t offset,
                     ByteSpan data) override {
    const BufferedScope buffered(file);
    return TransferAll("write", offset, data.size(), [&](uint64_t done) {
      return pwrite(file.handle, data.data() + done, data.size() - done,
                    static_cast<off_t>(offset + done));
    });
  }

  absl::Status Truncate(const File& file, uint64_t size) override {
    return Check(Uninterrupted([&] {
                   return ftruncate(file.handle, static_cast<off_t>(size));
                 }),
                 "truncate");
  }

  absl::Status Sync(const File& file) override {
    return Check(Uninterrupted([&] { return fsync(file.handle); }), "fsync");
  }

  absl::Status SyncDirectory(absl::string_view path) override {
    const std::string name(path);
    OwnedFd fd(Uninterrupted([&] {
      return open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }));
    if (fd.get() < 0) return PosixError(errno, absl::StrCat("open ", path));
    return Check(Uninterrupted([&] { return fsync(fd.get()); }), "fsync ",
                 path);
  }

  absl::Status Rename(absl::string_view from, absl::string_view to) override {
    return Check(rename(std::string(from).c_str(), std::string(to).c_str()),
                 "rename ", from, " to ", to);
  }

  absl::Status RenameExclusive(absl::string_view from,
                               absl::string_view to) override {
    const std::string source(from);
    const std::string target(to);
    int result = renameat2(AT_FDCWD, source.c_str(), AT_FDCWD, target.c_str(),
                           RENAME_NOREPLACE);
    if (result != 0 && (errno == EINVAL || errno == ENOSYS)) {
      // Adds a second name, then removes the first: just as atomic, for files.
      result = link(source.c_str(), target.c_str());
      if (result == 0) result = unlink(source.c_str());
    }
    return Check(result, "rename ", from, " to ", to);
  }

  absl::Status Exchange(absl::string_view a, absl::string_view b) override {
    if (renameat2(AT_FDCWD, std::string(a).c_str(), AT_FDCWD,
                  std::string(b).c_str(), RENAME_EXCHANGE) == 0) {
      return absl::OkStatus();
    }
    // File systems report a missing operation with EINVAL.
    const int error = errno == EINVAL ? EOPNOTSUPP : errno;
    return PosixError(error, absl::StrCat("exchange ", a, " and ", b));
  }

  absl::Status Remove(absl::string_view path) override {
    return Check(unlink(std::string(path).c_str()), "remove ", path);
  }

  absl::Status MakeDirectory(absl::string_view path) override {
    return Check(mkdir(std::string(path).c_str(), 0777), "create ", path);
  }

  absl::Status RemoveDirectory(absl::string_view path) override {
    return Check(rmdir(std::string(path).c_str()), "remove ", path);
  }

  absl::StatusOr<FileInfo> Stat(absl::string_view path) override {
    struct stat info;
    if (lstat(std::string(path).c_str(), &info) != 0) {
      return PosixError(errno, path);
    }
    return ToFileInfo(info);
  }

  absl::StatusOr<FileInfo> Stat(const File& file) override {
    struct stat info;
    if (fstat(file.handle, &info) != 0) return PosixError(errno, "stat");
    return ToFileInfo(info);
  }

  absl::StatusOr<std::vector<DirectoryEntry>> List(
      absl::string_view path) override;

  absl::StatusOr<FileLock> Lock(absl::string_view path,
                                absl::string_view note) override {
    absl::StatusOr<FileLock> lock = TakePosixLock(std::string(path), note);
    if (!lock.ok()) return Annotate(lock.status(), "lock ", path);
    return lock;
  }

  absl::Status Unlock(absl::string_view path, File file) override {
    const OwnedFd fd(file.handle);
    // Before the lock ends, because afterwards the file may belong to another
    // holder.
    if (!IsSameFile(std::string(path), fd.get())) return absl::OkStatus();
    return Remove(path);
  }

  absl::StatusOr<std::unique_ptr<IoQueue>> NewQueue(
      uint32_t depth, std::span<uint8_t> memory) override {
    if (queue_kind_ != QueueKind::kBlocking) {
      absl::StatusOr<std::unique_ptr<IoQueue>> queue =
          NewUringQueue(depth, memory);
      if (queue.ok() || queue_kind_ == QueueKind::kUring) return queue;
    }
    return std::make_unique<BlockingQueue>(depth);
  }

 private:
  template <typename... Parts>
  static absl::Status Check(int result, const Parts&... what) {
    if (result == 0) return absl::OkStatus();
    return PosixError(errno, absl::StrCat(what...));
  }

  static absl::StatusOr<File> OpenRegular(const std::string& path,
                                          DirectMode mode,
                                          bool follow_symlinks);

  const QueueKind queue_kind_;
};

absl::StatusOr<File> PosixFileSystem::OpenRegular(const std::string& path,
                                                  DirectMode mode,
                                                  bool follow_symlinks) {
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const int flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY |
                    (follow_symlinks ? 0 : O_NOFOLLOW);
  OwnedFd fd(Uninterrupted([&] { return open(path.c_str(), flags); }));
  if (fd.get() < 0) {
    struct stat link;
    if (errno == ELOOP && !follow_symlinks && lstat(path.c_str(), &link) == 0 &&
        S_ISLNK(link.st_mode)) {
      return absl::InvalidArgumentError("is a symbolic link");
    }
    // A socket, or a device that is not there.
    if (errno == ENXIO) {
      return absl::InvalidArgumentError("is not a regular file");
    }
    return PosixError(errno, "open");
  }
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return PosixError(errno, "stat");
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError("is not a regular file");
  }
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  const bool wanted = mode == DirectMode::kOn || (mode == DirectMode::kAuto &&
                                                  size >= kMinDirectFileBytes &&
                                                  !IsCached(fd.get(), info));
  DCP_ASSIGN_OR_RETURN(const uint64_t alignment,
                       ChooseAlignment(fd.get(), wanted, mode));
  const File file{.handle = fd.Release(), .alignment = alignment, .size = size};
  if (!file.direct()) posix_fadvise(file.handle, 0, 0, POSIX_FADV_SEQUENTIAL);
  return file;
}

absl::StatusOr<std::vector<DirectoryEntry>> PosixFileSystem::List(
    absl::string_view path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(
      opendir(std::string(path).c_str()), closedir);
  if (dir == nullptr) return PosixError(errno, absl::StrCat("list ", path));
  std::vector<DirectoryEntry> entries;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(dir.get());
    if (entry == nullptr) break;
    const absl::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (entries.size() == kMaxFiles) {
      return absl::ResourceExhaustedError(
          absl::StrCat("list ", path, ": more than ", kMaxFiles, " entries"));
    }
    mode_t mode = DTTOIF(entry->d_type);
    if (entry->d_type == DT_UNKNOWN) {
      struct stat info;
      // The file has been removed since it was listed, so it is left out.
      if (fstatat(dirfd(dir.get()), entry->d_name, &info,
                  AT_SYMLINK_NOFOLLOW) != 0) {
        continue;
      }
      mode = info.st_mode;
    }
    entries.push_back({std::string(name), ToFileKind(mode)});
  }
  if (errno != 0) return PosixError(errno, absl::StrCat("list ", path));
  std::sort(entries.begin(), entries.end(),
            [](const DirectoryEntry& a, const DirectoryEntry& b) {
              return a.name < b.name;
            });
  return entries;
}

}  // namespace

std::unique_ptr<FileSystem> NewPosixFileSystem(QueueKind queue_kind) {
  return std::make_unique<PosixFileSystem>(queue_kind);
}

}  // namespace dcp
