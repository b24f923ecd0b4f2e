// LogWriter: writes lines to a descriptor, such as standard error, from a
// thread of its own, so that nobody who logs waits for a pipe that is not read
// or for a disk. Lines that find no room are left out and counted; a line
// "event=log_lost lines=N" says so once writing works again. After an error,
// such as a full disk, the next line is tried as if nothing had been.
#ifndef SERVER_LOG_WRITER_H_
#define SERVER_LOG_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace dcp::server {

class LogWriter {
 public:
  // What waits to be written, at most.
  static constexpr size_t kMaxWaitingBytes = size_t{1} << 20;

  // `fd` stays open as long as this.
  explicit LogWriter(int fd);
  // As Flush of a second.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // A line with its newline. Any thread; never waits for the descriptor.
  void Write(std::string line);
  // Until all that was written before is, or for as long. Any thread.
  void Flush(absl::Duration time);

 private:
  void Run();
  // Whether all of it was written.
  bool WriteWhole(const std::string& text);

  const int fd_;
  int stop_event_;
  bool torn_ = false;  // the last line, by an error; of the thread
  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::deque<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  size_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_lost_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last: it uses the others
};

}  // namespace dcp::server

#endif  // SERVER_LOG_WRITER_H_
