// SPDX-License-Identifier: Apache-2.0
// ServerProcess: a server in a separate process, to be killed or measured. The
// output and errors are read as they arrive, so that it never blocks on them.
// Thread-safe. For tests; a failure that a sound test cannot have is a
// DCP_CHECK.
#ifndef TESTS_SERVER_SERVER_PROCESS_H_
#define TESTS_SERVER_SERVER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace dcp::server {

class ServerProcess {
 public:
  // The program and the arguments. Standard input is closed when this object
  // ends.
  explicit ServerProcess(std::vector<std::string> arguments);
  // Kills it if it is still running.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Waits until it has printed `text`; false if it ends first.
  bool WaitUntilItSays(absl::string_view text);
  // The word that follows `text` in the output; a space or the end of a line
  // must follow the word.
  std::string WordAfter(absl::string_view text);
  // Waits that long, unless it ends first.
  void LetRun(absl::Duration time);

  void Signal(int signal);
  // Sends SIGKILL. Returns whether this ended the process.
  bool Kill();
  // The exit code; if negative, the signal that ended the process.
  int Wait();

  // The process' memory now, and the most that it ever had.
  uint64_t resident_bytes() const;
  uint64_t peak_resident_bytes() const;
  // Open files and connections.
  uint64_t num_descriptors() const;
  std::string said() const;

 private:
  void ReadOutput();
  uint64_t StatusBytes(absl::string_view field) const;

  pid_t pid_ = 0;
  int stdin_ = -1;
  int output_ = -1;
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  std::string said_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // no more output
  std::thread reader_;                          // last: it uses the others
};

}  // namespace dcp::server

#endif  // TESTS_SERVER_SERVER_PROCESS_H_
