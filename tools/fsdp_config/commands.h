// SPDX-License-Identifier: Apache-2.0
// RunCommand: all of fsdp-config except the process itself. Each verb does the
// work and returns the exit code; errors are printed here.
#ifndef TOOLS_FSDP_CONFIG_COMMANDS_H_
#define TOOLS_FSDP_CONFIG_COMMANDS_H_

#include <istream>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "dcp/io/file_system.h"
#include "tools/terminal/console.h"
#include "tools/terminal/exit_code.h"

namespace fsdp::tools {

// The terminal's input and color.
struct Terminal {
  std::istream* in = nullptr;  // answers to questions; null: none
  // Whether findings may be colored.
  bool out_has_colors = false;
  bool err_has_colors = false;
};

// `args` do not include the program's name; `variables` are "NAME=value".
// Results go to console.out. Findings go there too, or to console.err if the
// result is a config. Blocking; any thread.
dcp::tools::ExitCode RunCommand(absl::Span<const std::string> args,
                                const std::vector<std::string>& variables,
                                dcp::tools::Console console,
                                dcp::FileSystem& fs, Terminal terminal = {});

}  // namespace fsdp::tools

#endif  // TOOLS_FSDP_CONFIG_COMMANDS_H_
