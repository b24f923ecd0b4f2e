// SPDX-License-Identifier: Apache-2.0
// dcp-convert's main: sets up the process's limits, signals and streams.
// RunCommand does the rest.
// Tested by tests/tools/dcp_convert/dcp_convert_test.sh.

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "dcp/base/log.h"
#include "dcp/base/mutex_checks.h"
#include "dcp/io/file_system.h"
#include "dcp/io/file_systems/default_file_system.h"
#include "tools/dcp_convert/commands/commands.h"
#include "tools/dcp_convert/commands/signals.h"
#include "tools/dcp_convert/output/render.h"

namespace {

// A sharded checkpoint has many files, all open at once. The usual soft limit,
// 1024, exists for programs that use select().
void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Prints warnings and errors only.
void LogToStandardError() {
  dcp::SetLogSink([](dcp::LogSeverity severity, absl::string_view line) {
    if (severity == dcp::LogSeverity::kInfo) return;
    std::cerr << "dcp-convert: " << dcp::tools::Printable(line) << std::endl;
  });
}

// Without memory nothing can be unwound, so this only prints a message. The
// files that the run has made are hidden, and the next run removes them.
void EndWithoutMemory() {
  constexpr absl::string_view kLine =
      "dcp-convert: the system has no more memory for this process; an "
      "unfinished conversion publishes nothing; raise the limit, or allow less "
      "with --max-memory\n";
  const ssize_t written = write(STDERR_FILENO, kLine.data(), kLine.size());
  _exit(written < 0 ? dcp::tools::kExitDestination : dcp::tools::kExitRefused);
}

int TerminalWidth(int fd) {
  winsize size;
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// False if standard output cannot take the result. A reader that leaves early,
// as head does, is not an error.
bool WriteStandardOutput(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EPIPE) return true;
    if (written < 0) {
      std::cerr << "dcp-convert: standard output: " << strerror(errno)
                << std::endl;
      return false;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  dcp::DisableMutexChecks();
  std::set_new_handler(EndWithoutMemory);
  RaiseFileLimit();
  LogToStandardError();
  // A reader that stops reading our output must not end a conversion halfway.
  signal(SIGPIPE, SIG_IGN);
  // A write beyond ulimit -f becomes an error instead of ending the process.
  signal(SIGXFSZ, SIG_IGN);
  const dcp::tools::SignalStopper stopper;
  const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
  const std::unique_ptr<dcp::FileSystem> fs = dcp::NewDefaultFileSystem();
  // Results are written once, at the end: a table with 100,000 lines is one
  // write, and a late error does not follow half a result.
  std::ostringstream results;
  const dcp::tools::Console console{
      .out = results,
      .err = std::cerr,
      .err_is_terminal = isatty(STDERR_FILENO) == 1,
      .err_width = TerminalWidth(STDERR_FILENO),
      .out_descriptor = STDOUT_FILENO};
  const char* const server = getenv("TESSERA_SERVER");
  const dcp::tools::ExitCode code = dcp::tools::RunCommand(
      args, console, *fs, stopper.token(), server == nullptr ? "" : server);
  const bool written = WriteStandardOutput(results.str());
  return written ? code : dcp::tools::kExitDestination;
}
