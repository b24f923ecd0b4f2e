// SPDX-License-Identifier: Apache-2.0
// SignalStopper: turns Ctrl-C, SIGTERM and SIGHUP into a stop request. The
// first signal asks the running operation to end and to remove the files that
// it made; the second ends the process at once with 130. main makes it before
// any other thread starts.
#ifndef TOOLS_DCP_CONVERT_COMMANDS_SIGNALS_H_
#define TOOLS_DCP_CONVERT_COMMANDS_SIGNALS_H_

#include <atomic>
#include <csignal>
#include <optional>
#include <stop_token>

#include "dcp/base/thread.h"

namespace dcp::tools {

class SignalStopper {
 public:
  // Blocks the signals in this thread and those it starts, and waits for them
  // in a thread. If that thread cannot start, the process ends with
  // kExitRefused. A signal that the parent ignores stays ignored; shells ignore
  // SIGINT for background commands.
  SignalStopper();
  ~SignalStopper();
  SignalStopper(const SignalStopper&) = delete;
  SignalStopper& operator=(const SignalStopper&) = delete;

  std::stop_token token() const { return source_.get_token(); }

 private:
  void Wait();

  std::stop_source source_;
  std::atomic<bool> done_ = false;
  sigset_t signals_;
  std::optional<Thread> thread_;
};

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_COMMANDS_SIGNALS_H_
