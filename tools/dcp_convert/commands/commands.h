// SPDX-License-Identifier: Apache-2.0
// RunCommand: all of dcp-convert except the process itself. Each verb has a
// function in a file: it returns the exit code if the verb did the work, and a
// status if it could not. Errors are printed here.
#ifndef TOOLS_DCP_CONVERT_COMMANDS_COMMANDS_H_
#define TOOLS_DCP_CONVERT_COMMANDS_COMMANDS_H_

#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/io/file_system.h"
#include "tools/dcp_convert/options/command_line.h"
#include "tools/terminal/console.h"
#include "tools/terminal/exit_code.h"

namespace dcp::tools {

class Daemon;  // tools/dcp_convert/daemon/daemon.h

// A verb's surroundings; all of it must outlive the verb.
struct Context {
  const CommandLine& line;
  Console console;
  FileSystem& fs;
  std::stop_token stop;
  Daemon* daemon;  // does the work; null: this process does
};

absl::StatusOr<ExitCode> RunInspect(const Context& context);
absl::StatusOr<ExitCode> RunVerify(const Context& context);
absl::StatusOr<ExitCode> RunDiff(const Context& context);
absl::StatusOr<ExitCode> RunJobs(const Context& context);
// All verbs that write.
absl::StatusOr<ExitCode> RunConvert(const Context& context);
absl::StatusOr<ExitCode> RunWorkers(const Context& context);
absl::StatusOr<ExitCode> RunClean(const Context& context);
absl::StatusOr<ExitCode> RunMaps(const Context& context);

// `args` do not include the program's name; `server` is the value of
// TESSERA_SERVER. Blocking; one thread at a time (see ParseCommandLine).
ExitCode RunCommand(absl::Span<const std::string> args, Console console,
                    FileSystem& fs, std::stop_token stop,
                    absl::string_view server = "");

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_COMMANDS_COMMANDS_H_
