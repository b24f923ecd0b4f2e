// SPDX-License-Identifier: Apache-2.0
// LogWriter: writes lines to a descriptor, such as standard error, on a
// separate thread, so that nobody who logs waits for a slow disk or for a pipe
// that nobody reads. Lines that do not fit into the buffer are dropped and
// counted; a line "event=log_lost lines=N" reports them once writing works
// again. After an error, such as a full disk, the next line is tried as usual.
#ifndef SERVER_PROCESS_LOG_WRITER_H_
#define SERVER_PROCESS_LOG_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "dcp/base/steady_time.h"
#include "dcp/base/thread.h"

namespace dcp::server {

class LogWriter {
 public:
  // The most that may wait to be written.
  static constexpr size_t kMaxWaitingBytes = size_t{1} << 20;

  // `fd` must stay open while this lives.
  explicit LogWriter(int fd);
  // Flushes for up to one second, if it was started.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // Begins to write the lines given to Write, before this call and after it.
  // Called once; an error if the system starts no thread.
  absl::Status Start();

  // `line` ends with a newline. Any thread; never waits for the descriptor.
  void Write(std::string line);
  // Waits until all lines written before are on the descriptor, at most for
  // `time`. Any thread.
  void Flush(absl::Duration time);

 private:
  void Run();
  // Returns whether the whole text was written.
  bool WriteWhole(const std::string& text);

  const int fd_;
  int stop_event_;
  bool torn_ = false;  // an error cut the last line; used by the thread only
  absl::Mutex mutex_;
  SteadyCondVar changed_;
  std::deque<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  size_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_lost_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Thread> thread_;  // last: it uses the other members
};

}  // namespace dcp::server

#endif  // SERVER_PROCESS_LOG_WRITER_H_
