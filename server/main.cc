// SPDX-License-Identifier: Apache-2.0
// dcp-server: the process: options, signals and log output. Server does the
// rest.

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/log.h"
#include "dcp/base/mutex_checks.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "dcp/base/thread.h"
#include "dcp/base/version.h"
#include "dcp/io/file_systems/default_file_system.h"
#include "server/options/command_line.h"
#include "server/options/server_options.h"
#include "server/process/forced_end.h"
#include "server/process/library_log.h"
#include "server/process/log_line.h"
#include "server/process/log_writer.h"
#include "server/process/systemd.h"
#include "server/process/task_queue.h"
#include "server/process/watchdog.h"
#include "server/server.h"
#include "third_party/licenses/licenses.h"

namespace {

// Documented in --help.
enum ExitCode : int {
  kStopped = 0,
  kFailed = 1,
  kWrongOptions = 2,
  kStopForced = 3,
};

// The time that stopped jobs get to finish a block, and cancelled calls to end.
// After that the process exits without them.
constexpr absl::Duration kStopGrace = absl::Seconds(20);

// Sent by the destructor of SignalWatch to end the wait for signals, and by
// nobody else.
constexpr int kWakeSignal = SIGUSR2;

// How often the server checks whether the certificate expires soon.
constexpr absl::Duration kWarnPeriod = absl::Hours(24);

// Each stream and each file of a checkpoint needs a descriptor.
void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// While this lives, log lines go through `writer_`, so that nobody waits for
// standard error.
class LogToWriter {
 public:
  explicit LogToWriter(const dcp::server::LogFormat& format) {
    dcp::SetLogSink([this, format](dcp::LogSeverity severity,
                                   absl::string_view line) {
      if (severity < format.lowest) return;
      writer_.Write(dcp::server::LogLine(severity, line, absl::Now(), format));
    });
  }
  ~LogToWriter() {
    dcp::SetLogSink([](dcp::LogSeverity, absl::string_view) {});
  }

  absl::Status Start() { return writer_.Start(); }
  void Flush() { writer_.Flush(absl::Seconds(1)); }

 private:
  dcp::server::LogWriter writer_{STDERR_FILENO};
};

// Blocks SIGTERM, SIGINT, SIGHUP and kWakeSignal in this thread and in those
// that it starts. Called before there are other threads.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, kWakeSignal})
    sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A client that disconnects must not end the process.
  signal(SIGPIPE, SIG_IGN);
  // Writing beyond the limit of ulimit -f is an error, not the end.
  signal(SIGXFSZ, SIG_IGN);
  return signals;
}

// Handles signals on a separate thread. The first signal to end the process is
// reported to main, the second stops the server. SIGHUP makes the server read
// the files again. Also warns each day if the certificate expires soon, and
// tells systemd that the process works. The server outlives this.
class SignalWatch {
 public:
  // After the first signal that ends the process, it has `drain` plus
  // kStopGrace left; after the second, kStopGrace.
  SignalWatch(const sigset_t& signals, dcp::server::Server& server,
              absl::Duration drain, dcp::server::ForcedEnd& forced_end)
      : signals_(signals),
        server_(server),
        drain_(drain),
        forced_end_(forced_end) {}
  ~SignalWatch() {
    if (!thread_.has_value()) return;
    done_ = true;
    pthread_kill(thread_->native_handle(), kWakeSignal);
    thread_.reset();  // joins
  }

  // Called once; an error if the system starts no thread.
  absl::Status Start() {
    DCP_ASSIGN_OR_RETURN(thread_, dcp::Thread::Start([this] { Run(); }));
    return absl::OkStatus();
  }

  void WaitForFirst() { first_.WaitForNotification(); }

 private:
  void Run() {
    absl::Duration next_warning = dcp::SteadyNow() + kWarnPeriod;
    absl::Duration next_ping = dcp::SteadyNow();
    while (true) {
      const absl::Duration now = dcp::SteadyNow();
      if (now >= next_warning) {
        PostFiles([this] { server_.WarnAboutExpiry(); });
        next_warning = now + kWarnPeriod;
      }
      if (now >= next_ping) {
        if (watchdog_.period() != absl::InfiniteDuration()) watchdog_.Ping();
        next_ping = now + watchdog_.period();
      }
      const timespec wait =
          absl::ToTimespec(std::min(next_warning, next_ping) - now);
      const int signal = sigtimedwait(&signals_, nullptr, &wait);
      if (done_) return;
      if (signal < 0 || signal == kWakeSignal) continue;
      DCP_LOG(kInfo) << "event=signal name=" << sigabbrev_np(signal);
      if (signal == SIGHUP) {
        // If a reload is waiting already, that will read the current files.
        PostFiles([this] { server_.Reload(); });
      } else if (first_.HasBeenNotified()) {
        forced_end_.Within(kStopGrace);
        server_.Stop();
      } else {
        forced_end_.Within(drain_ + kStopGrace);
        first_.Notify();
      }
    }
  }

  void PostFiles(std::function<void()> task) {
    files_.Post(dcp::server::kNoClient, std::move(task)).IgnoreError();
  }

  const sigset_t signals_;
  dcp::server::Server& server_;
  const absl::Duration drain_;
  dcp::server::ForcedEnd& forced_end_;
  // A root that hangs blocks the thread that reads the files, not the handling
  // of signals.
  dcp::server::TaskQueue files_{
      {.num_threads = 1, .per_client = 1, .max_waiting = 1}};
  dcp::server::Watchdog watchdog_{[this] { server_.CheckAlive(); }};
  std::atomic<bool> done_ = false;
  absl::Notification first_;
  std::optional<dcp::Thread> thread_;  // last: it uses the other members
};

// Prints one line for each problem.
void Complain(const absl::Status& status) {
  for (absl::string_view line : absl::StrSplit(status.message(), '\n')) {
    std::cerr << "dcp-server: " << line << std::endl;
  }
}

// Says why the server could not start, and returns the exit code.
int Fail(const absl::Status& status, LogToWriter& log) {
  Complain(status);
  // Destroying the server would wait for threads of gRPC that could not start.
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    log.Flush();
    _exit(kFailed);
  }
  return kFailed;
}

int Serve(const dcp::server::ServerOptions& options, const sigset_t& signals,
          LogToWriter& log) {
  if (options.check_config) {
    const absl::Status status = dcp::server::Server::Check(options);
    if (!status.ok()) {
      Complain(status);
      return kWrongOptions;
    }
    std::cout << "dcp-server: no problem found" << std::endl;
    return kStopped;
  }
  // Constructed before the server, so that it also limits the server's
  // destruction.
  dcp::server::ForcedEnd forced_end(kStopForced, [&log] { log.Flush(); });
  absl::StatusOr<std::unique_ptr<dcp::server::Server>> server =
      dcp::server::Server::Create(options, dcp::NewDefaultFileSystem());
  if (!server.ok()) {
    const int failed = Fail(server.status(), log);
    return server.status().code() == absl::StatusCode::kInvalidArgument
               ? kWrongOptions
               : failed;
  }
  const absl::StatusOr<std::string> address = (*server)->Start();
  if (!address.ok()) return Fail(address.status(), log);
  // Signals that came before are pending and handled now.
  SignalWatch watch(signals, **server, options.drain, forced_end);
  if (const absl::Status watched = watch.Start(); !watched.ok()) {
    return Fail(watched, log);
  }
  DCP_LOG(kInfo) << "event=start address=" << *address
                 << " tls=" << (options.tls_cert.empty() ? "no" : "yes")
                 << " tokens=" << (options.tokens_file.empty() ? "no" : "yes");
  dcp::server::NotifySystemd("READY=1");
  watch.WaitForFirst();
  dcp::server::NotifySystemd("STOPPING=1");
  (*server)->Drain();
  return kStopped;
}

}  // namespace

int main(int argc, char** argv) {
  dcp::DisableMutexChecks();
  RaiseFileLimit();
  const sigset_t signals = BlockSignals();
  const absl::StatusOr<dcp::server::ServerOptions> options =
      dcp::server::ParseServerOptions(
          std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  if (!options.ok()) {
    Complain(options.status());
    return kWrongOptions;
  }
  if (options->help) {
    std::cout << dcp::server::ServerHelp() << std::flush;
    return kStopped;
  }
  if (options->version) {
    std::cout << "dcp-server " << dcp::kVersion << std::endl;
    return kStopped;
  }
  if (options->licenses) {
    std::cout << dcp::LicensesText() << std::flush;
    return kStopped;
  }
  LogToWriter log(options->log);
  if (const absl::Status started = log.Start(); !started.ok()) {
    Complain(started);
    return kFailed;
  }
  dcp::server::LogLibraries();
  return Serve(*options, signals, log);
}
