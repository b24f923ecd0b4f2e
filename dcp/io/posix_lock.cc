// SPDX-License-Identifier: Apache-2.0
// [Note: locks] The lock is a flock(2) lock. The kernel releases it with the
// last descriptor, and NFS passes it on to the server. It belongs to the open
// file, not to the name, and the holder removes the name before it releases the
// lock: a process that opened the file before that and gets the lock after it
// holds a file without a name and has to start again. If a file system does not
// support these locks (ENOLCK, ENOSYS, EOPNOTSUPP), the process that created
// the file holds the lock until the file is removed.

#include "dcp/io/posix_lock.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/status.h"
#include "dcp/io/posix_error.h"
#include "dcp/io/posix_fd.h"

namespace dcp {
namespace {

// The maximum lock file size; a longer file is not one of ours.
constexpr uint64_t kMaxLockFileBytes = 4096;
// The number of times that the holder may remove the file between two calls of
// ours.
constexpr int kMaxLockAttempts = 100;

absl::StatusOr<std::string> ReadLockFile(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return PosixError(errno, "stat");
  std::string text(kMaxLockFileBytes, '\0');
  ssize_t length = 0;
  if (S_ISREG(info.st_mode)) {
    length =
        Uninterrupted([&] { return pread(fd, text.data(), text.size(), 0); });
    if (length < 0) return PosixError(errno, "read");
    text.resize(static_cast<size_t>(length));
  }
  // An empty file has just been created, or lost the text in a crash.
  if (!S_ISREG(info.st_mode) ||
      (!text.empty() && !absl::StartsWith(text, kLockFileMagic))) {
    return absl::FailedPreconditionError(
        "a file with this name exists, but is not a lock file; move it away");
  }
  return text;
}

// Returns the text's length.
absl::StatusOr<uint64_t> WriteLockFile(int fd, absl::string_view note) {
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, HOST_NAME_MAX);
  const std::string text = absl::StrCat(
      kLockFileMagic, "host ", host, "\npid ", getpid(), "\nsince ",
      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::Now(),
                       absl::UTCTimeZone()),
      "\n", note);
  if (ftruncate(fd, 0) != 0) return PosixError(errno, "truncate");
  DCP_RETURN_IF_ERROR(TransferAll("write", 0, text.size(), [&](uint64_t done) {
    return pwrite(fd, text.data() + done, text.size() - done,
                  static_cast<off_t>(done));
  }));
  return text.size();
}

}  // namespace

bool IsSameFile(const std::string& path, int fd) {
  struct stat named;
  struct stat opened;
  return lstat(path.c_str(), &named) == 0 && fstat(fd, &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

absl::StatusOr<FileLock> TakePosixLock(const std::string& path,
                                       absl::string_view note) {
  for (int attempt = 0; attempt < kMaxLockAttempts; ++attempt) {
    constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    OwnedFd fd(Uninterrupted([&] {
      return open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | kFlags, 0666);
    }));
    const bool is_new = fd.get() >= 0;
    bool writable = true;
    if (!is_new && errno == EEXIST) {
      fd.Reset(open(path.c_str(), O_RDWR | kFlags));
      if (fd.get() < 0 && errno == EACCES) {  // it belongs to another user
        writable = false;
        fd.Reset(open(path.c_str(), O_RDONLY | kFlags));
      }
      if (fd.get() < 0 && errno == ENOENT) continue;
    }
    if (fd.get() < 0) return PosixError(errno, "open");
    DCP_ASSIGN_OR_RETURN(std::string text, ReadLockFile(fd.get()));
    if (Uninterrupted([&] { return flock(fd.get(), LOCK_EX | LOCK_NB); }) !=
        0) {
      if (errno == EWOULDBLOCK) return FileLock{.file = {}, .text = text};
      if (errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP) {
        return PosixError(errno, "flock");
      }
      if (!is_new) {
        return FileLock{.file = {}, .text = text, .by_existence = true};
      }
    }
    if (!IsSameFile(path, fd.get())) continue;
    if (!writable) {  // left by a dead holder
      if (unlink(path.c_str()) != 0) return PosixError(errno, "remove");
      continue;
    }
    // By now it has the last holder's final text.
    DCP_ASSIGN_OR_RETURN(text, ReadLockFile(fd.get()));
    const absl::StatusOr<uint64_t> size = WriteLockFile(fd.get(), note);
    if (!size.ok()) {
      if (is_new) unlink(path.c_str());
      return size.status();
    }
    return FileLock{.file = {.handle = fd.Release(), .size = *size},
                    .text = text};
  }
  return absl::UnavailableError(
      "other processes take and release the lock all the time");
}

}  // namespace dcp
