// dcp-server: the process. Options, signals, lines of log; the rest is Server.

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/log.h"
#include "grpc/support/log.h"
#include "server/log_text.h"
#include "server/server.h"
#include "server/server_options.h"

namespace {

// As --help says.
enum ExitCode : int { kStopped = 0, kFailed = 1, kWrongOptions = 2 };

// Sent by main to end the wait for signals; nobody else sends it.
constexpr int kWakeSignal = SIGUSR2;

// Each stream and each file of a checkpoint is a descriptor.
void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// "2026-01-31T12:00:00.123Z I event=..."
void LogWithTime() {
  dcp::SetLogSink([](dcp::LogSeverity severity, absl::string_view line) {
    static constexpr char kLetters[] = {'I', 'W', 'E'};
    std::cerr << absl::StrCat(
        absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(),
                         absl::UTCTimeZone()),
        " ", absl::string_view(&kLetters[static_cast<int>(severity)], 1), " ",
        line, "\n");
  });
}

// What gRPC itself has to say is an event too.
void LogGrpc() {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  gpr_set_log_function([](gpr_log_func_args* args) {
    DCP_LOG(kWarning) << "event=grpc message="
                      << dcp::server::LogText(args->message);
  });
}

// SIGTERM, SIGINT and our own, blocked in this thread and those that it starts:
// before there is any other.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, kWakeSignal}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A client that leaves must not end the process.
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

// Waits for signals in a thread of its own: the first is told to main, the
// second stops the server, which outlives this.
class SignalWatch {
 public:
  SignalWatch(const sigset_t& signals, dcp::server::Server& server)
      : signals_(signals), server_(server), thread_([this] { Run(); }) {}
  ~SignalWatch() {
    done_ = true;
    pthread_kill(thread_.native_handle(), kWakeSignal);
    thread_.join();
  }

  void WaitForFirst() { first_.WaitForNotification(); }

 private:
  void Run() {
    while (true) {
      int signal = 0;
      if (sigwait(&signals_, &signal) != 0) continue;
      if (done_) return;
      if (signal == kWakeSignal) continue;
      DCP_LOG(kInfo) << "event=signal name=" << sigabbrev_np(signal);
      if (first_.HasBeenNotified()) {
        server_.Stop();
      } else {
        first_.Notify();
      }
    }
  }

  const sigset_t signals_;
  dcp::server::Server& server_;
  std::atomic<bool> done_ = false;
  absl::Notification first_;
  std::thread thread_;  // the last: it uses the others
};

// A line for each thing that is wrong.
void Complain(const absl::Status& status) {
  for (absl::string_view line : absl::StrSplit(status.message(), '\n')) {
    std::cerr << "dcp-server: " << line << std::endl;
  }
}

int Serve(const dcp::server::ServerOptions& options) {
  const sigset_t signals = BlockSignals();
  absl::StatusOr<std::unique_ptr<dcp::server::Server>> server =
      dcp::server::Server::Create(options);
  if (!server.ok()) {
    Complain(server.status());
    return options.check_config ||
                   server.status().code() == absl::StatusCode::kInvalidArgument
               ? kWrongOptions
               : kFailed;
  }
  if (options.check_config) {
    std::cout << "dcp-server: nothing is wrong" << std::endl;
    return kStopped;
  }
  const absl::StatusOr<std::string> address = (*server)->Start();
  if (!address.ok()) {
    Complain(address.status());
    return kFailed;
  }
  // A signal that came meanwhile has waited.
  SignalWatch watch(signals, **server);
  DCP_LOG(kInfo) << "event=start address=" << *address
                 << " tls=" << (options.tls_cert.empty() ? "no" : "yes")
                 << " tokens=" << (options.tokens_file.empty() ? "no" : "yes");
  watch.WaitForFirst();
  (*server)->Drain();
  return kStopped;
}

}  // namespace

int main(int argc, char** argv) {
  RaiseFileLimit();
  LogWithTime();
  LogGrpc();
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
  return Serve(*options);
}
