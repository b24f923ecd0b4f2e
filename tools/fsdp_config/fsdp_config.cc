// SPDX-License-Identifier: Apache-2.0
// fsdp-config: the process's streams and environment; RunCommand does the rest.
//
// Tested by tests/interop/packages_test.py.

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "dcp/io/file_system.h"
#include "tools/fsdp_config/commands.h"

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  const std::unique_ptr<dcp::FileSystem> fs = dcp::NewPosixFileSystem();
  // https://no-color.org
  const char* no_color = std::getenv("NO_COLOR");
  const bool may_color = no_color == nullptr || *no_color == '\0';
  const dcp::tools::ExitCode code = fsdp::tools::RunCommand(
      args, variables, {.out = std::cout, .err = std::cerr}, *fs,
      {.in = &std::cin,
       .out_has_colors = may_color && isatty(STDOUT_FILENO) == 1,
       .err_has_colors = may_color && isatty(STDERR_FILENO) == 1});
  std::cout.flush();
  return std::cout.good() ? code : dcp::tools::kExitDestination;
}
