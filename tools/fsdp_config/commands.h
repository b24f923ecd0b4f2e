// RunCommand: fsdp-config without its process. Each verb does its work and
// gives the exit code; errors are printed here.
#ifndef TOOLS_FSDP_CONFIG_COMMANDS_H_
#define TOOLS_FSDP_CONFIG_COMMANDS_H_

#include <istream>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "dcp/io/file_system.h"
#include "tools/console.h"
#include "tools/exit_code.h"

namespace fsdp::tools {

// Who sits in front of the streams.
struct Terminal {
  std::istream* in = nullptr;  // of answers; null: there are none
  // Whether findings may be colored.
  bool out_has_colors = false;
  bool err_has_colors = false;
};

// `args` are without the program's name; `variables` are "NAME=value". Results
// go to console.out, and findings there or, where the result is a config, to
// console.err. Blocking; any thread.
dcp::tools::ExitCode RunCommand(absl::Span<const std::string> args,
                                const std::vector<std::string>& variables,
                                dcp::tools::Console console,
                                dcp::FileSystem& fs, Terminal terminal = {});

}  // namespace fsdp::tools

#endif  // TOOLS_FSDP_CONFIG_COMMANDS_H_
