// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/commands/signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/check.h"
#include "tools/terminal/exit_code.h"

namespace dcp::tools {
namespace {

// Sent by the destructor to end the wait; nobody else sends it.
constexpr int kWakeSignal = SIGUSR2;

void Say(absl::string_view text) {
  // Nothing can be done if standard error is gone.
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, text.data(), text.size());
}

bool IsIgnored(int signal) {
  struct sigaction action;
  return sigaction(signal, nullptr, &action) == 0 &&
         action.sa_handler == SIG_IGN;
}

}  // namespace

SignalStopper::SignalStopper() {
  sigemptyset(&signals_);
  sigaddset(&signals_, kWakeSignal);
  for (int signal : {SIGHUP, SIGINT, SIGTERM}) {
    if (!IsIgnored(signal)) sigaddset(&signals_, signal);
  }
  const int error = pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  DCP_CHECK(error == 0, "pthread_sigmask: ", error);
  absl::StatusOr<Thread> thread = Thread::Start([this] { Wait(); });
  if (!thread.ok()) {
    Say(absl::StrCat("dcp-convert: ", thread.status().message(), "\n"));
    _exit(kExitRefused);
  }
  thread_ = *std::move(thread);
}

SignalStopper::~SignalStopper() {
  done_ = true;
  pthread_kill(thread_->native_handle(), kWakeSignal);
  thread_->Join();
}

void SignalStopper::Wait() {
  while (true) {
    int signal = 0;
    if (sigwait(&signals_, &signal) != 0) continue;
    if (done_) return;
    if (signal == kWakeSignal) continue;
    if (source_.stop_requested()) {
      Say("\ndcp-convert: interrupted again: ending without cleaning up\n");
      _exit(kExitInterrupted);
    }
    Say("\ndcp-convert: interrupted: stopping; once more ends at once\n");
    source_.request_stop();
  }
}

}  // namespace dcp::tools
