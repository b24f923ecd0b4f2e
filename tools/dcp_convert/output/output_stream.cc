// SPDX-License-Identifier: Apache-2.0
// A write to a pipe blocks until all bytes are in the pipe, and no signal
// interrupts it, because a separate thread takes the signals. To notice a stop
// while the reader is slow, the writer first waits for room, and then writes no
// more than a pipe with room accepts at once. The descriptor is not made
// non-blocking, because other processes share it.
#include "tools/dcp_convert/output/output_stream.h"

#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace dcp::tools {
namespace {

constexpr int kPollMs = 100;

class LineWriter {
 public:
  LineWriter(int descriptor, bool is_file, std::stop_token stop)
      : descriptor_(descriptor), is_file_(is_file), stop_(std::move(stop)) {}

  absl::Status operator()(ByteSpan bytes) {
    while (!bytes.empty()) {
      if (stop_.stop_requested()) {
        return absl::CancelledError(
            absl::StrCat("stopped after ", written_, " bytes"));
      }
      if (!is_file_ && !HasRoom()) continue;
      const size_t most = is_file_ ? bytes.size() : size_t{PIPE_BUF};
      const ssize_t count =
          write(descriptor_, bytes.data(), std::min(bytes.size(), most));
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (count < 0) return Failed(errno);
      written_ += static_cast<uint64_t>(count);
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return absl::OkStatus();
  }

 private:
  // True if there is room, or an error that the write will report.
  bool HasRoom() const {
    pollfd wait = {.fd = descriptor_, .events = POLLOUT, .revents = 0};
    return poll(&wait, 1, kPollMs) > 0;
  }

  absl::Status Failed(int error) const {
    const std::string after =
        absl::StrCat(" after ", written_,
                     " bytes; what was written is not a complete checkpoint");
    if (error == EPIPE) {
      return absl::AbortedError(
          absl::StrCat("the reader of standard output has gone away", after));
    }
    return absl::UnavailableError(
        absl::StrCat("standard output: ", strerror(error), after));
  }

  const int descriptor_;
  const bool is_file_;
  const std::stop_token stop_;
  uint64_t written_ = 0;
};

}  // namespace

absl::StatusOr<ByteStream> OpenOutputStream(int descriptor,
                                            std::stop_token stop) {
  struct stat info;
  if (descriptor < 0 || fstat(descriptor, &info) != 0) {
    return absl::InvalidArgumentError("standard output is not open");
  }
  if (isatty(descriptor) == 1) {
    return absl::InvalidArgumentError(
        "standard output is a terminal, but a checkpoint is binary: "
        "redirect it to a pipe or a file, or name a file");
  }
  return LineWriter(descriptor, S_ISREG(info.st_mode), std::move(stop));
}

}  // namespace dcp::tools
