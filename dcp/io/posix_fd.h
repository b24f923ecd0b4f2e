// SPDX-License-Identifier: Apache-2.0
// File descriptors: owning one, and calls that a signal or a short transfer
// interrupts. For posix_*.cc alone; any thread.
#ifndef DCP_IO_POSIX_FD_H_
#define DCP_IO_POSIX_FD_H_

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/io/posix_error.h"

namespace dcp {

// Repeats `call` as long as a signal interrupts it.
template <typename Call>
auto Uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// Closes the descriptor unless released.
class OwnedFd {
 public:
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

// Repeats `move(done)`, one pread or pwrite for the rest, until all is moved.
template <typename Move>
absl::Status TransferAll(const char* what, uint64_t offset, uint64_t size,
                         Move move) {
  uint64_t done = 0;
  while (done < size) {
    const ssize_t moved = Uninterrupted([&] { return move(done); });
    if (moved < 0) {
      return PosixError(errno, absl::StrCat(what, " [", offset + done, ", +",
                                            size - done, ")"));
    }
    if (moved == 0) {
      return absl::OutOfRangeError(absl::StrCat(
          what, " [", offset, ", +", size, "): file ends at ", offset + done));
    }
    done += static_cast<uint64_t>(moved);
  }
  return absl::OkStatus();
}

}  // namespace dcp

#endif  // DCP_IO_POSIX_FD_H_
