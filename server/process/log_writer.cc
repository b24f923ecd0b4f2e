// SPDX-License-Identifier: Apache-2.0

#include "server/process/log_writer.h"

#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"

namespace dcp::server {
namespace {

constexpr absl::Duration kLastFlush = absl::Seconds(1);

}  // namespace

LogWriter::LogWriter(int fd)
    : fd_(fd), stop_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  DCP_CHECK(stop_event_ >= 0, std::strerror(errno));
}

absl::Status LogWriter::Start() {
  DCP_ASSIGN_OR_RETURN(thread_, Thread::Start([this] { Run(); }));
  return absl::OkStatus();
}

LogWriter::~LogWriter() {
  if (thread_.has_value()) Flush(kLastFlush);
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  DCP_CHECK(eventfd_write(stop_event_, 1) == 0);
  thread_.reset();  // joins
  close(stop_event_);
}

void LogWriter::Write(std::string line) {
  absl::MutexLock lock(&mutex_);
  if (num_bytes_ + line.size() > kMaxWaitingBytes) {
    ++num_lost_;
    return;
  }
  num_bytes_ += line.size();
  lines_.push_back(std::move(line));
  changed_.SignalAll();
}

void LogWriter::Flush(absl::Duration time) {
  const absl::Duration end = SteadyNow() + time;
  absl::MutexLock lock(&mutex_);
  while ((!lines_.empty() || writing_) && !changed_.WaitUntil(&mutex_, end)) {
  }
}

void LogWriter::Run() {
  uint64_t num_failed = 0;
  while (true) {
    std::string line;
    uint64_t num_lost = 0;
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      changed_.SignalAll();
      while (lines_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (stopping_) return;
      line = std::move(lines_.front());
      lines_.pop_front();
      num_bytes_ -= line.size();
      writing_ = true;
      num_lost = std::exchange(num_lost_, 0) + std::exchange(num_failed, 0);
    }
    if (num_lost > 0) {
      const std::string told =
          absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(),
                                        absl::UTCTimeZone()),
                       " W event=log_lost lines=", num_lost, "\n");
      if (!WriteWhole(told)) num_failed += num_lost;
    }
    if (!WriteWhole(line)) ++num_failed;
  }
}

bool LogWriter::WriteWhole(const std::string& text) {
  // Ends a line that an error has cut, so that this line stands alone.
  const std::string line = absl::StrCat(torn_ ? "\n" : "", text);
  torn_ = false;
  size_t written = 0;
  while (written < line.size()) {
    // Waits even if the process at the other end has made the descriptor
    // nonblocking.
    pollfd waiting[] = {{.fd = fd_, .events = POLLOUT, .revents = 0},
                        {.fd = stop_event_, .events = POLLIN, .revents = 0}};
    if (poll(waiting, 2, -1) < 0 && errno != EINTR) return false;
    if (waiting[1].revents != 0) return false;
    // A writable pipe accepts PIPE_BUF bytes without blocking.
    const size_t size = std::min<size_t>(line.size() - written, PIPE_BUF);
    const ssize_t length = write(fd_, line.data() + written, size);
    if (length < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (length <= 0) {
      torn_ = written > 0;
      return false;
    }
    written += static_cast<size_t>(length);
  }
  return true;
}

}  // namespace dcp::server
